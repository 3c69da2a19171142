"""Users update a running stack in the cloud, not through climate."""

import json
from typing import Any

import pytest

from climate.core.errors import ClimateError, IdentityUnavailable, InvalidInput
from climate.manager.audit import cloud as audit
from climate.manager.audit.changes_in_cloud import follow_changes
from climate.manager.resources.inventory_sync import synchronise
from climate.plugins.base import Drift, QuotesRequest
from climate.plugins.stacks.schema import stored
from climate.plugins.stacks.template import Source
from tests.conftest import MakeStory
from tests.support.bodies import effect_names
from tests.support.service import Story
from tests.support.stack_leases import (
    advance,
    amounts,
    change,
    cloud_of,
    create,
    deployed,
    group,
    live,
    prepare_story,
    running,
    server,
    shown,
    stacks,
    template,
    update,
)


@pytest.fixture
def story(make_story: MakeStory) -> Story:
    return prepare_story(make_story)


def follow(story: Story) -> None:
    follow_changes(story.runtime)
    advance(story, 1 / 60)


def news(story: Story, lease: dict[str, Any]) -> list[str]:
    return [kind for kind in story.event_types(lease["id"]) if "reserved" in kind]


def test_a_larger_template_is_reserved_and_moves_to_the_reserved_flavors(story: Story) -> None:
    lease = running(story)
    update(story, template(workers=group(5), web=server()))
    follow(story)
    after = live(shown(story, lease))
    assert amounts(after) == {"servers of flavor m1.large": 5, "servers of flavor m1.small": 1}
    ids = {item["params"].get("part"): item["id"] for item in after["reservations"]}
    assert ids["servers of flavor m1.small"] in str(deployed(story).template["resources"]["web"])
    assert "mine" in stacks(story)[0].tags
    assert audit.audit(story.runtime) == []
    assert not after["degraded"]
    updates = effect_names(story, "update_stack")
    follow(story)
    assert effect_names(story, "update_stack") == updates


def test_a_user_can_change_parameters_of_the_template_that_climate_deployed(story: Story) -> None:
    parameters = {"flavor": {"type": "string", "default": "m1.large"}, "most": {"type": "number"}}
    source = {**template(workers=group({"get_param": "most"})), "parameters": parameters}
    lease = running(story, source, parameters={"most": 1})
    update(story, deployed(story).template, tags=True, most=3)
    follow(story)
    assert amounts(live(shown(story, lease))) == {"servers of flavor m1.large": 3}
    assert deployed(story).parameters == {"most": 3}


def test_the_original_template_moves_back_to_the_reserved_flavors(story: Story) -> None:
    lease = running(story)
    before = deployed(story)
    for tags in (False, True):
        update(story, template(workers=group(2)), tags=tags)
        follow(story)
        assert deployed(story) == before
    assert amounts(live(shown(story, lease))) == {"servers of flavor m1.large": 2}


def test_a_change_that_does_not_fit_is_kept_and_reported_once_until_it_fits(story: Story) -> None:
    lease = running(story)
    most = {"flavor_id": "large", "amount": 18}
    rest = create(story, {"resource_type": "flavor:instance", "params": most}, first=0)
    advance(story, 1)
    larger = template(workers=group(8))
    update(story, larger)
    for _ in range(2):
        follow(story)
        synchronise(story.runtime)
        now = shown(story, lease)
        assert now["degraded"]
        assert "servers of flavor m1.large" in now["reservations"][0]["details"]["not_reserved"]
        assert deployed(story).template == larger
    story.run()
    assert news(story, lease) == ["lease.not_reserved"]
    story.ok("DELETE", f"/v2/leases/{rest['id']}")
    advance(story, 1)
    follow(story)
    synchronise(story.runtime)
    now = shown(story, lease)
    assert amounts(live(now)) == {"servers of flavor m1.large": 8}
    assert not now["degraded"]
    assert "not_reserved" not in now["reservations"][0]["details"]


def test_an_invalid_change_is_reported_and_another_start_does_not_revert_it(story: Story) -> None:
    lease = running(story)
    odd = template(workers=group(2), odd=server("m1.none"))
    cloud = cloud_of(story)
    [present] = stacks(story)
    source = json.dumps(stored(Source(odd)))
    cloud.journal.act("update_stack", stack=present.id, tags="", source=source)
    follow(story)
    synchronise(story.runtime)
    story.run()
    now = shown(story, lease)
    assert "m1.none" in now["reservations"][0]["details"]["not_reserved"]
    path = f"/v2/leases/{lease['id']}"
    story.ok("PATCH", path, {"reservations": [], "name": "other"})
    audit.repair(story.runtime, Drift("start it again", lease_id=lease["id"]))
    advance(story, 1)
    assert deployed(story).template == odd
    assert shown(story, lease)["degraded"]
    story.ok("PATCH", path, change(lease, template=template(workers=group(3))))
    advance(story, 1)
    assert "odd" not in deployed(story).template["resources"]
    follow(story)
    assert "not_reserved" not in shown(story, lease)["reservations"][0]["details"]


def test_a_stack_that_stays_after_the_lease_keeps_a_change_that_did_not_fit(story: Story) -> None:
    lease = running(story, template(web=server()), on_end="suspend")
    rest = {"resource_type": "flavor:instance", "params": {"flavor_id": "large", "amount": 21}}
    create(story, rest, first=0)
    advance(story, 1)
    larger = template(web=server(), workers=group(9))
    update(story, larger)
    follow(story)
    advance(story, 60)
    assert shown(story, lease)["status"] == "TERMINATED"
    [present] = stacks(story)
    assert (present.status, deployed(story).template) == ("SUSPEND_COMPLETE", larger)


def test_two_managers_follow_the_same_change_once(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = running(story)
    update(story, template(workers=group(2)))  # the parameters of the lease stay the same
    cloud = cloud_of(story)
    preview = cloud.preview

    def slow(*asked: Any) -> Any:
        monkeypatch.setattr(cloud, "preview", preview)
        follow(story)
        return preview(*asked)

    monkeypatch.setattr(cloud, "preview", slow)
    follow(story)
    story.run()
    assert story.event_types(lease["id"]).count("lease.update") == 1
    assert story.event_types(lease["id"]).count("lease.event.update_lease") == 1


@pytest.mark.parametrize("tags", [False, True])
def test_a_change_during_an_update_is_not_overwritten(story: Story, tags: bool) -> None:
    source = template(workers=group({"get_param": "most"}))
    source["parameters"]["most"] = {"type": "number", "default": 2}
    lease = running(story, source)
    path = f"/v2/leases/{lease['id']}"
    story.ok("PATCH", path, change(lease, parameters={"most": 3}))
    story.run()  # climate sends the update, and waits for Heat
    update(story, source, tags=tags, most=4)
    advance(story, 1)
    assert deployed(story).parameters == {"most": 4}
    follow(story)
    assert amounts(live(shown(story, lease))) == {"servers of flavor m1.large": 4}
    assert audit.audit(story.runtime) == []


def test_a_second_change_before_the_first_is_deployed_is_not_overwritten(story: Story) -> None:
    lease = running(story)
    update(story, template(workers=group(5)))
    follow_changes(story.runtime)  # and no manager has deployed it yet
    update(story, template(workers=group(6)))
    advance(story, 1)
    assert deployed(story).template == template(workers=group(6))
    follow(story)
    assert amounts(live(shown(story, lease))) == {"servers of flavor m1.large": 6}
    assert audit.audit(story.runtime) == []


def test_the_reason_has_no_outage_no_secret_and_no_endless_text(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = running(story)
    update(story, template(workers=group(5)))
    reasons: list[tuple[ClimateError, str | None]] = [
        (IdentityUnavailable("Keystone is away"), None),
        (QuotesRequest("hunter2 is no image"), "the changed stack is rejected"),
        (InvalidInput("x" * 5000), "x" * 1000),
    ]
    raised: list[ClimateError] = []

    def preview(*_asked: Any) -> Any:
        raise raised[-1]

    monkeypatch.setattr(cloud_of(story), "preview", preview)
    for error, reason in reasons:
        raised.append(error)
        follow(story)
        found = shown(story, lease)["reservations"][0]["details"].get("not_reserved")
        assert found == reason or found.startswith(reason)
        assert "hunter2" not in json.dumps(shown(story, lease))


def test_a_change_of_the_lease_replaces_later_changes_in_the_cloud(story: Story) -> None:
    lease = running(story)
    update(story, template(workers=group(5)))
    follow_changes(story.runtime)
    update(story, template(workers=group(6)))
    story.ok("PATCH", f"/v2/leases/{lease['id']}", change(lease, template=template(web=server())))
    advance(story, 1)
    follow(story)
    assert deployed(story).template["resources"].keys() == {"web"}
