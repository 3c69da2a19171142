"""/v1/os-hosts/properties: which extra capabilities there are, and which are private."""

import uuid
from pathlib import Path

import pytest

from climate import service
from tests.support.service import Story

PATH = "/v1/os-hosts/properties"
ADMIN = "boss:ops:admin"
READER = "bob:lab:reader"


@pytest.fixture
def equipped(story: Story) -> Story:
    """Return a service whose hosts have the capabilities gpu (private), rack and color."""
    story.ok("PUT", "/v1/os-hosts/1", {"gpu": "True", "rack": "r2"})
    story.ok("PUT", "/v1/os-hosts/2", {"gpu": "True", "rack": "r10"})
    story.ok("PUT", "/v1/os-hosts/3", {"color": "red"})
    story.ok("PATCH", f"{PATH}/gpu", {"private": True})
    return story


def names(story: Story, query: str = "", token: str | None = None) -> list[str]:
    """Return the names that are listed, in order."""
    found = story.ok("GET", f"{PATH}{query}", token=token)["resource_properties"]
    return [one["property"] for one in found]


def test_names_are_listed_without_those_that_are_private(equipped: Story) -> None:
    assert equipped.ok("GET", PATH) == {
        "resource_properties": [{"property": "color"}, {"property": "rack"}]
    }


def test_all_lists_private_ones_too(equipped: Story) -> None:
    assert names(equipped, "?all=True") == ["color", "gpu", "rack"]


def test_detail_adds_the_values_in_use(equipped: Story) -> None:
    found = equipped.ok("GET", f"{PATH}?detail=True&all=True")["resource_properties"]
    assert [{**one, "values": sorted(one["values"])} for one in found] == [
        {"property": "color", "private": False, "values": ["red"]},
        {"property": "gpu", "private": True, "values": ["True"]},
        {"property": "rack", "private": False, "values": ["r10", "r2"]},
    ]


def test_what_means_no_is_no(equipped: Story) -> None:
    for value in ["False", "false", "0", "no", ""]:
        assert names(equipped, f"?all={value}&detail={value}") == ["color", "rack"]
        assert "values" not in str(equipped.ok("GET", f"{PATH}?detail={value}"))


def test_a_cloud_without_capabilities_has_none_to_list(story: Story) -> None:
    assert names(story, "?all=True&detail=True") == []


def test_a_property_is_hidden_and_shown_again(story_everywhere: Story) -> None:
    story = story_everywhere
    host = story.ok("GET", "/v1/os-hosts")["hosts"][0]
    story.ok("PUT", f"/v1/os-hosts/{host['id']}", {"gpu": "True"})
    story.clock.advance(60)
    hidden = story.ok("PATCH", f"{PATH}/gpu", {"private": True})
    assert hidden == {
        "resource_property": {
            "id": hidden["resource_property"]["id"],
            "resource_type": "physical:host",
            "property_name": "gpu",
            "private": True,
            "created_at": "2030-01-15T12:00:00.000000",
            "updated_at": "2030-01-15T12:01:00.000000",
        }
    }
    assert uuid.UUID(hidden["resource_property"]["id"])
    assert names(story) == []
    shown = story.ok("PATCH", f"{PATH}/gpu", {"private": False})["resource_property"]
    assert shown["private"] is False
    assert names(story) == ["gpu"]


def test_private_is_true_or_false(equipped: Story) -> None:
    for private in [None, "True", "false", 2, [], {}]:
        message = equipped.refused(400, "PATCH", f"{PATH}/rack", {"private": private})
        assert "private" in message


def test_private_is_required(equipped: Story) -> None:
    message = equipped.refused(400, "PATCH", f"{PATH}/rack", {})
    assert message == "Missing parameter private"


def test_only_an_extra_capability_can_be_hidden(equipped: Story) -> None:
    for name in ["nope", "vcpus", "RACK"]:
        message = equipped.refused(404, "PATCH", f"{PATH}/{name}", {"private": True})
        assert message == f"Object with {{'property_name': '{name}'}} not found"


def test_a_private_property_can_still_be_asked_for(equipped: Story) -> None:
    body = equipped.lease_body()
    body["reservations"][0]["resource_properties"] = '["==", "$gpu", "True"]'
    equipped.ok("POST", "/v1/leases", body, token="alice:lab")


def test_who_may_list_but_not_hide_never_sees_private_ones(equipped: Story, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text('"climate:oshosts:get_resource_properties": "role:reader or role:admin"\n')
    equipped.conf.set_override("policy_file", str(policy), group="oslo_policy")
    equipped.http = service.make_api(equipped.conf, equipped.runtime).test_client()
    assert names(equipped, "?all=True", ADMIN) == ["color", "gpu", "rack"]
    assert names(equipped, "?all=True", READER) == ["color", "rack"]
