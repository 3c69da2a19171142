"""/v2/resource-types: schemas for generated forms, and properties for suggestions."""

import copy
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from climate.api.v2.http.fields import nullable_params
from tests.conftest import MakeStory
from tests.support.service import Story

ALICE, ADMIN = "alice:lab", "boss:ops:admin"
PLUGINS = [
    "physical.host.plugin",
    "virtual.instance.plugin",
    "flavor.instance.plugin",
    "virtual.floatingip.plugin",
    "virtual.network.plugin",
    "virtual.volume.plugin",
    "virtual.stack.plugin",
]
# Parameters of each type that climate accepts.
VALID: dict[str, dict[str, Any]] = {
    "physical:host": {"min": 1, "max": 2, "resource_properties": [">=", "$vcpus", 4]},
    "virtual:instance": {"amount": 1, "vcpus": 1, "memory_mb": 0, "disk_gb": 0, "affinity": False},
    "flavor:instance": {"amount": 1, "flavor_id": "1", "affinity": None},
    "virtual:floatingip": {"network_id": "public", "required_floatingips": ["198.51.100.7"]},
    "virtual:network": {"network_name": "net", "network_properties": ""},
    "virtual:volume": {"volume_type": "gold", "size": 1, "on_end": "keep"},
    "virtual:stack": {"template": {"heat_template_version": "2021-04-16"}, "files": {"a": "b"}},
}


@pytest.fixture
def types(make_story: MakeStory) -> dict[str, dict[str, Any]]:
    """Return the descriptions of all resource types, by name."""
    story = make_story(manager__plugins=PLUGINS)
    return {each["name"]: each for each in story.ok("GET", "/v2/resource-types", token=ALICE)}


def test_each_type_describes_itself_and_every_parameter(types: dict[str, dict[str, Any]]) -> None:
    assert types.keys() == VALID.keys()
    for type_ in types.values():
        assert type_["title"]
        assert type_["description"].endswith(".")
        Draft202012Validator.check_schema(type_["schema"])
        assert "$ref" not in str(type_["schema"])
        for name, parameter in type_["schema"]["properties"].items():
            assert parameter["title"], name
            assert parameter.keys() & {"type", "enum", "anyOf"}, name
    hosts, stack = types["physical:host"], types["virtual:stack"]
    assert (hosts["title"], hosts["countable"], hosts["amounts"]) == ("Hosts", True, ["min", "max"])
    assert (stack["countable"], stack["amounts"], stack["booked_type"]) == (False, [], None)
    assert types["virtual:instance"]["booked_type"] == "physical:host"
    assert types["virtual:volume"]["booked_type"] == "virtual:volume"
    assert types["virtual:volume"]["fixed"] == ["match", "volume_type", "volume_type_id"]


def test_schemas_flag_expressions_secrets_and_what_climate_sets(
    types: dict[str, dict[str, Any]],
) -> None:
    def flagged(type_: str, key: str, value: Any) -> set[str]:
        properties = types[type_]["schema"]["properties"]
        return {name for name, each in properties.items() if each.get(key) == value}

    expressions = {"hypervisor_properties", "resource_properties"}
    assert flagged("physical:host", "format", "property-expression") == expressions
    secrets = {"template", "files", "parameters", "environment"}
    assert flagged("virtual:stack", "writeOnly", True) == secrets
    assert flagged("virtual:stack", "format", "yaml") == {"template", "environment"}
    assert flagged("virtual:volume", "readOnly", True) == {"volume_type_id"}
    server = types["virtual:instance"]["schema"]["properties"]["server"]["anyOf"][0]
    assert server["properties"]["user_data"]["writeOnly"] is True
    order = list(types["virtual:instance"]["schema"]["properties"])
    assert order[:4] == ["amount", "vcpus", "memory_mb", "disk_gb"]
    assert order[-5:] == ["on_start", "on_end", "server", "ready_text", "ready_port"]
    name = types["virtual:stack"]["schema"]["properties"]["stack_name"]
    assert name["pattern"].startswith("^")


def test_a_schema_accepts_what_the_plugin_accepts(
    make_story: MakeStory, types: dict[str, dict[str, Any]]
) -> None:
    plugins = make_story(manager__plugins=PLUGINS).runtime.plugins
    for name, params in VALID.items():
        validator = Draft202012Validator(types[name]["schema"])
        assert [error.message for error in validator.iter_errors(params)] == []
        optional = nullable_params(plugins[name].schema())
        assert plugins[name].schema(partial=optional).validate(copy.deepcopy(params)) == {}
        unit = types[name]["unit"]
        partial = {**types[name]["schema"], "required": []}
        assert [error.message for error in Draft202012Validator(partial).iter_errors(unit)] == []


@pytest.mark.parametrize(
    ("resource_type", "params", "names"),
    [
        ("physical:host", {"min": 1, "max": 1}, ("min", "max")),
        (
            "virtual:instance",
            {"amount": 1, "vcpus": 1, "memory_mb": 1, "disk_gb": 1},
            ("amount", "vcpus", "memory_mb", "disk_gb"),
        ),
        ("virtual:volume", {"volume_type": "gold", "amount": 1, "size": 1}, ("amount", "size")),
    ],
)
def test_the_bounds_in_a_schema_are_those_of_the_plugin(
    make_story: MakeStory, resource_type: str, params: dict[str, Any], names: tuple[str, ...]
) -> None:
    story = make_story(manager__plugins=PLUGINS)
    types = {each["name"]: each for each in story.ok("GET", "/v2/resource-types")}
    schema = story.runtime.plugins[resource_type].schema()
    required = {name: None for name in schema.fields if schema.fields[name].required}
    for name in names:
        bounds = types[resource_type]["schema"]["properties"][name]
        low, high = bounds["minimum"], bounds["maximum"]
        # A lease has at least as many hosts at most as it has at least.
        both = {"max": high} if name == "min" else {}
        for value, is_valid in ((low, True), (high, True), (low - 1, False), (high + 1, False)):
            errors = schema.validate({**required, **params, **both, name: value})
            assert (errors == {}) is is_valid, (name, value, errors)


def test_lists_properties_with_values_for_suggestions(story_everywhere: Story) -> None:
    first, second, *_ = story_everywhere.ok("GET", "/v1/os-hosts")["hosts"]
    for host, extra in (
        (first, {"rack": "r2", "gpus": "10", "secret": "yes", "note": "x" * 64}),
        (second, {"rack": "r1", "gpus": "9"}),
    ):
        story_everywhere.ok("PUT", f"/v1/os-hosts/{host['id']}", extra)
    story_everywhere.ok("PATCH", "/v1/os-hosts/properties/secret", {"private": True})

    def properties(token: str) -> dict[str, dict[str, Any]]:
        path = "/v2/resource-types/physical:host/properties"
        found = story_everywhere.ok("GET", path, token=token)["properties"]
        assert [each["name"] for each in found] == sorted(each["name"] for each in found)
        return {each["name"]: each for each in found}

    shown = properties(ALICE)
    public = {"private": False, "type": None, "unit": None}
    rack = {"name": "rack", "values": ["r1", "r2"], "numeric": False, **public}
    gpus = {"name": "gpus", "values": ["9", "10"], "numeric": True, **public}
    note: dict[str, Any] = {"name": "note", "values": [], "numeric": False, **public}
    assert (shown["rack"], shown["gpus"], shown["note"]) == (rack, gpus, note)
    assert shown["vcpus"]["values"] == ["16", "64"]
    assert "secret" not in shown
    secret = {"name": "secret", "values": ["yes"], "numeric": False, **public, "private": True}
    assert properties(ADMIN)["secret"] == secret


def test_the_number_of_values_is_limited(story_everywhere: Story) -> None:
    first, *others = story_everywhere.ok("GET", "/v1/os-hosts")["hosts"]
    for number in range(30):
        path = f"/v1/os-hosts/{[first, *others][number % 4]['id']}"
        story_everywhere.ok("PUT", path, {f"p{number:02}": "x"})
    path = "/v2/resource-types/physical:host/properties"
    names = [each["name"] for each in story_everywhere.ok("GET", path)["properties"]]
    assert [name for name in names if name.startswith("p")] == [f"p{n:02}" for n in range(30)]


def test_instances_have_the_properties_of_hosts_and_stacks_none(make_story: MakeStory) -> None:
    story = make_story(manager__plugins=PLUGINS)
    story.register(2)
    base = "/v2/resource-types"
    of_hosts = story.ok("GET", f"{base}/physical:host/properties")
    assert of_hosts["properties"] != []
    assert story.ok("GET", f"{base}/virtual:instance/properties") == of_hosts
    for empty in ("virtual:stack", "virtual:volume"):
        assert story.ok("GET", f"{base}/{empty}/properties") == {"properties": []}
    problem = story.problem(404, "GET", f"{base}/virtual:nothing/properties")
    assert problem["detail"] == "There is no resource type virtual:nothing"
    assert story.problem(400, "GET", f"{base}?limit=1")["code"] == "invalid_input"
