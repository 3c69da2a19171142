"""The image and the Compose project are valid, and name only what exists.

``compose-spec.json`` is the schema of the Compose Specification (compose-spec/compose-spec at
170098ba, Apache License 2.0) without the element ``models``, which the project does not use.
tests/system/test_compose.py runs the programs of the project.
"""

import json
import re
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from climate.config import registry
from climate.provisioner import nodes
from tests.deploy import compose

ROOT = Path(__file__).parents[2]
CONTAINERFILE = compose.DEPLOY / "Containerfile"
SCHEMA = Path(__file__).with_name("compose-spec.json")


def setup() -> ConfigParser:
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def programs() -> set[str]:
    lines = setup()["options.entry_points"]["console_scripts"].strip().splitlines()
    return {line.partition(" = ")[0] for line in lines}


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Containerfile, each with its arguments in one line."""
    text = re.sub(r"\\\n", " ", CONTAINERFILE.read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def last_stage() -> dict[str, str]:
    """Return the instructions of the last stage, of which each occurs once at most."""
    found = instructions()
    start = max(number for number, (name, _) in enumerate(found) if name == "FROM")
    return dict(found[start:])


def test_the_compose_project_is_valid() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    Draft7Validator(schema).validate(compose.project())


def test_services_depend_on_services_and_mount_files_that_exist() -> None:
    project = compose.project()
    missing = []
    for name, service in project["services"].items():
        missing += [
            (name, other)
            for other in service.get("depends_on", {})
            if other not in project["services"]
        ]
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            is_there = (
                (compose.DEPLOY / source).is_file()
                if source.startswith(".")
                else source in project["volumes"]
            )
            missing += [] if is_there else [(name, source)]
    assert missing == []


def test_services_publish_ports_to_this_machine_only() -> None:
    published = [port for item in compose.services().values() for port in item.get("ports", ())]
    assert published
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


@pytest.mark.parametrize("name", compose.OURS)
def test_services_of_climate_run_its_programs_without_privileges(name: str) -> None:
    service = compose.services()[name]
    assert service["command"][0] in programs()
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    options = {
        f"OS_{group}__{option.dest}".upper()
        for group, given in registry.GROUPS.items()
        for option in given
    }
    assert service["environment"].keys() <= options


def test_the_configuration_has_only_valid_options() -> None:
    path = compose.DEPLOY / "climate.conf"
    conf = registry.new()
    registry.load(conf, "test", [f"--config-file={path}"])
    assert registry.unknown_options(conf) == []
    assert registry.settings(conf).provisioning is not None


def test_the_nodes_are_the_simulated_hosts() -> None:
    found = nodes.read(compose.DEPLOY / "nodes.toml")
    conf = registry.new()
    registry.load(conf, "test", [f"--config-file={compose.DEPLOY / 'climate.conf'}"])
    assert set(found) == {f"sim-{number}" for number in range(1, conf.simulated.hosts + 1)}


def test_the_image_is_built_in_stages_and_runs_as_a_user_without_rights() -> None:
    assert [name for name, _ in instructions()].count("FROM") == 2
    last = last_stage()
    user = last["USER"].partition(":")[0]
    assert int(user) > 0
    assert f"--uid {user}" in last["RUN"]
    assert last["HEALTHCHECK"].partition(" CMD ")[2] == json.dumps(
        compose.services()["api"]["healthcheck"]["test"][1:]
    )
    assert json.loads(last["CMD"])[0] in programs()


def copied() -> Iterator[str]:
    for name, arguments in instructions():
        if name == "COPY" and not arguments.startswith("--from"):
            yield from arguments.split()[:-1]


def test_the_image_is_built_from_files_that_exist_and_are_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sources = list(copied())
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert {f"!{source}" for source in sources} == {
        line for line in ignored if line.startswith("!")
    }
    extras = re.findall(r"'\.\[([\w,]+)\]'", CONTAINERFILE.read_text(encoding="utf-8"))[0]
    assert set(extras.split(",")) <= setup()["options.extras_require"].keys()
