"""The nodes file: defaults are inherited, and all errors are reported together."""

from pathlib import Path

import pytest

from climate.provisioner.nodes import InvalidNodeConfig, read

GOOD = """
[defaults]
driver = "ipmi"
username = "climate"
password_env = "BMC_PASSWORD"
options = {cipher_suite = 17, privilege = "OPERATOR"}

[nodes.compute-1]
address = "10.1.0.1"
groups = ["rack-3", "pdu-7"]

[nodes.compute-2]
address = "https://10.1.0.2"
driver = "redfish"
password_file = "{file}"
options = {verify = false}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nodes.toml"


def test_a_node_inherits_the_defaults(path: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of-the-file\n")
    path.write_text(GOOD.replace("{file}", str(secret)))
    found = read(path)
    assert list(found) == ["compute-1", "compute-2"]
    one, two = found.values()
    assert (one.driver, one.username, one.groups) == ("ipmi", "climate", ["rack-3", "pdu-7"])
    assert one.options == {"cipher_suite": 17, "privilege": "OPERATOR"}
    assert two.options == {"cipher_suite": 17, "privilege": "OPERATOR", "verify": False}
    assert two.password() == "of-the-file"


def test_a_missing_password_is_reported_when_it_is_needed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text(GOOD)
    one, two = read(path).values()
    monkeypatch.delenv("BMC_PASSWORD", raising=False)
    with pytest.raises(InvalidNodeConfig, match="BMC_PASSWORD"):
        one.password()
    with pytest.raises(InvalidNodeConfig, match="cannot be read"):
        two.password()
    monkeypatch.setenv("BMC_PASSWORD", "of-the-environment")
    assert one.password() == "of-the-environment"


INVALID = [
    ("nodes = [", "nodes.toml"),
    ("[node.a]\ndriver = 'ipmi'", "unknown table node"),
    ("[nodes]\na = 1", "a: .*Must be a table"),
    ("[nodes.a]\naddress = 'x'", "a: .*driver"),
    ("[nodes.a]\ndriver = 'ipmi'\nport = 70000", "a: .*port"),
    ("[nodes.a]\ndriver = 'ipmi'\npassword = 'x'", "a: .*password.*Unknown"),
    ("[nodes.a]\ndriver = 'i'\npassword_env = 'x'\npassword_file = 'y'", "not both"),
    ("[nodes.a]\n[nodes.b]\n", "a: .*b: "),
]


def test_an_invalid_file_is_rejected_with_all_its_errors(path: Path) -> None:
    for text, message in INVALID:
        path.write_text(text)
        with pytest.raises(InvalidNodeConfig, match=message):
            read(path)


def test_a_missing_file_is_reported(path: Path) -> None:
    with pytest.raises(InvalidNodeConfig, match="No such file"):
        read(path)
