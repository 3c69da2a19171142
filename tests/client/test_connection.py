"""Where the service is and how to sign in: OS_* variables, clouds.yaml, Keystone's catalog."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from climate import client as climate
from climate.client import connection
from climate.client.transport import TIMEOUT
from tests.client.conftest import run
from tests.support.keystone import Keystone
from tests.support.loopback import served
from tests.support.service import Story


@pytest.fixture
def catalog(keystone: Keystone, secured: Story) -> Iterator[Keystone]:
    """Return a Keystone whose catalog names a service that checks its tokens."""
    with served(secured) as port:
        keystone.endpoints["reservation"] = f"http://127.0.0.1:{port}/v1"
        yield keystone


def variables(keystone: Keystone) -> dict[str, str]:
    return {
        "OS_AUTH_URL": keystone.url,
        "OS_USERNAME": "alice",
        "OS_PASSWORD": "open sesame",
        "OS_PROJECT_ID": "lab",
        "OS_USER_DOMAIN_ID": "default",
        "OS_INTERFACE": "internal",
        "OS_REGION_NAME": "R",
    }


def test_os_variables_sign_in_and_the_catalog_names_the_service(catalog: Keystone) -> None:
    found = climate.connect(environ=variables(catalog)).me()
    assert (found.user.id, found.project.id) == ("alice", "lab")
    with pytest.raises(climate.SignInFailed, match="Signing in failed"):
        climate.connect(environ=variables(catalog), password="wrong").me()
    with pytest.raises(
        climate.NotConfigured, match="no endpoint of the type reservation in region"
    ):
        climate.connect(environ=variables(catalog), region_name="S").me()


def test_clouds_yaml_signs_in(
    catalog: Keystone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "clouds.yaml"
    path.write_text(
        f"clouds:\n  lab:\n    auth:\n      auth_url: {catalog.url}\n      username: alice\n"
        "      password: open sesame\n      project_id: lab\n      user_domain_id: default\n"
        "    region_name: R\n    interface: internal\n"
    )
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(path))
    assert climate.connect("lab", environ={}).me().user.id == "alice"
    assert climate.connect(environ={"OS_CLOUD": "lab"}).url.endswith("/v2")
    elsewhere = climate.connect("lab", environ={}, endpoint="http://127.0.0.1:1/v1")
    assert elsewhere.url == "http://127.0.0.1:1/v2"
    with pytest.raises(climate.NotConfigured, match="Cloud moon was not found"):
        climate.connect("moon", environ={})
    monkeypatch.delenv("OS_AUTH_TYPE", raising=False)
    answer = run("--os-cloud", "lab", "whoami", "-f", "value", "-c", "project")
    assert '"id": "lab"' in answer.output, answer.errors


def test_without_any_setting_the_error_says_what_to_set() -> None:
    with pytest.raises(
        climate.NotConfigured, match=r"Nothing says where climate is\. Set OS_CLOUD"
    ):
        climate.connect(environ={})
    with pytest.raises(climate.NotConfigured, match="OS_AUTH_TYPE=none needs OS_ENDPOINT"):
        climate.connect(environ={"OS_AUTH_TYPE": "none"})
    named = {"OS_AUTH_TYPE": "admin_token", "OS_ENDPOINT": "http://127.0.0.1:1"}
    with pytest.raises(
        climate.NotConfigured, match="admin_token needs OS_TOKEN, such as alice:lab"
    ):
        climate.connect(environ=named)
    with pytest.raises(climate.NotConfigured, match="Unknown OS_AUTH_TYPE 'magic'; known: "):
        climate.connect(environ={"OS_AUTH_TYPE": "magic"})


def test_requests_to_keystone_have_a_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {"OS_AUTH_URL": "http://127.0.0.1:1/v3", "OS_USERNAME": "alice"}
    session, _ = connection.open_place({}, variables)
    assert session.timeout == TIMEOUT
    clouds = tmp_path / "clouds.yaml"
    clouds.write_text("clouds: {lab: {auth: {auth_url: 'http://127.0.0.1:1/v3'}}}")
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(clouds))
    session, _ = connection.open_place({"cloud": "lab"}, {})
    assert session.timeout == TIMEOUT


def test_an_endpoint_must_be_a_url() -> None:
    with pytest.raises(climate.NotConfigured, match="must begin with http"):
        climate.connect(auth_type="none", endpoint="127.0.0.1:1234", environ={}).me()


def test_a_keystone_that_does_not_answer_is_named() -> None:
    environ = {**variables(Keystone()), "OS_AUTH_URL": "http://127.0.0.1:1/v3"}
    with pytest.raises(
        climate.KeystoneUnreachable, match=r"answer at http://127\.0\.0\.1:1/v3: Connection ref"
    ):
        climate.connect(environ=environ).me()


@pytest.mark.parametrize(
    ("endpoint", "root"),
    [
        ("http://h:1234", "http://h:1234"),
        ("http://h:1234/v1/", "http://h:1234"),
        ("https://h/reservation/v1.0", "https://h/reservation"),
        ("https://h/v2", "https://h"),
    ],
)
def test_the_url_of_v2_follows_from_that_of_v1(endpoint: str, root: str) -> None:
    assert connection.root_of(endpoint) == root
