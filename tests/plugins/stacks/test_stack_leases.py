"""Leases of virtual:stack: a stack, and reservations for its largest size."""

import json
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest

from climate.manager.audit import cloud as audit
from climate.plugins.base import Requester
from climate.plugins.stacks.template import Source
from tests.conftest import MakeStory
from tests.support.bodies import effect_names
from tests.support.service import Story
from tests.support.stack_leases import (
    NETWORK,
    SHOP,
    advance,
    amounts,
    change,
    cloud_of,
    create,
    group,
    prepare_story,
    request,
    server,
    shown,
    stack,
    stacks,
    template,
)


@pytest.fixture
def story(make_story: MakeStory) -> Story:
    return prepare_story(make_story)


def test_a_stack_that_is_deleted_before_its_start_is_not_in_the_history(story: Story) -> None:
    lease = create(story, stack())
    story.call("DELETE", f"/v2/leases/{lease['id']}")
    advance(story, 1)
    story.refused(404, "GET", f"/v1/leases/{lease['id']}")
    assert story.ok("GET", "/v2/past-leases")["past_leases"] == []


def test_reserves_every_part_that_the_stack_can_grow_to(story: Story) -> None:
    lease = create(story, stack())
    assert amounts(lease) == {
        "servers of flavor m1.small": 1,
        "servers of flavor m1.large": 4,
        f"floating IPs of network {NETWORK}": 1,
    }
    [own, *parts] = lease["reservations"]
    assert {item["params"]["stack"] for item in parts} == {own["id"]}
    assert own["params"]["reserves"]["servers"] == [
        {"flavor_id": "large", "flavor": "m1.large", "amount": 4},
        {"flavor_id": "small", "flavor": "m1.small", "amount": 1},
    ]


def test_a_stack_is_admitted_as_a_whole_or_not_at_all(story: Story) -> None:
    capacity = 3 * (16 // 4) + 1000 // 91
    most = template(workers=group(capacity))
    problem = story.problem(
        409, "POST", "/v2/leases", request(story, stack(template(web=server(), workers=group(99))))
    )
    assert "servers of flavor m1.large in the stack" in problem["detail"]
    assert problem["reservation"] == 0
    assert stacks(story) == []
    create(story, stack(most))
    story.problem(409, "POST", "/v2/leases", request(story, stack(template(workers=group(1)))))

    body = {
        "reservations": [stack(template(workers=group(20)))],
        "duration": 3600,
        "start_after": story.moment(60),
        "end_by": story.moment(600),
    }
    window, *_ = story.ok("POST", "/v2/availability/search", body)["windows"]
    assert window["start"] == story.moment(120)


def test_a_stack_that_reserves_nothing_starts_at_any_time(story: Story) -> None:
    empty = {"reservations": [stack(template())], "duration": 60, "end_by": story.moment(60)}
    [window] = story.ok("POST", "/v2/availability/search", empty)["windows"]
    assert (window["start"], window["latest_start"]) == (story.moment(), story.moment(59))
    lease = story.ok("POST", "/v2/leases", {**empty, "name": "empty", "start": "asap"})
    assert lease["start"] == story.moment()


def test_the_stack_uses_the_reserved_parts_from_start_to_end(story: Story) -> None:
    lease = create(story, stack())
    [empty] = stacks(story)
    assert (empty.status, empty.plan) == ("CREATE_COMPLETE", None)
    advance(story, 60)
    ids = {item["params"].get("part"): item["id"] for item in lease["reservations"]}
    [update] = [effect for effect in story.cloud.effects() if effect["effect"] == "update_stack"]
    small, large = ids["servers of flavor m1.small"], ids["servers of flavor m1.large"]
    assert sorted(update["flavors"].split(",")) == sorted([small, large])
    made = json.loads(update["source"])["template"]["resources"]["address"]
    assert made["external_id"].startswith("floatingip-")
    assert shown(story, lease)["status"] == "ACTIVE"
    advance(story, 60)
    assert shown(story, lease)["status"] == "TERMINATED"
    assert stacks(story) == []
    done = effect_names(story, "open_slots", "update_stack", "delete_stack", "close_slots")
    assert done == ["open_slots"] * 2 + ["update_stack", "delete_stack"] + ["close_slots"] * 2
    assert audit.audit(story.runtime) == []


def test_hides_template_parameters_and_files(story: Story) -> None:
    lease = create(story, stack(parameters={"word": "hunter2"}, files={"a": "hunter2"}))
    story.ok("PATCH", f"/v2/leases/{lease['id']}", {"name": "other"})
    for path in (f"/v2/leases/{lease['id']}", "/v2/leases", "/v1/leases"):
        assert "hunter2" not in json.dumps(story.ok("GET", path))
    story.run()
    assert "hunter2" not in json.dumps(story.ok("GET", "/v2/notifications"))


@pytest.mark.parametrize("minutes", [0, 60])
def test_a_stack_can_be_added_to_a_lease(story: Story, minutes: float) -> None:
    hosts = {"resource_type": "physical:host", "params": {"min": 1, "max": 1}}
    lease = create(story, hosts)
    advance(story, minutes)
    path = f"/v2/leases/{lease['id']}"
    story.problem(409, "PATCH", path, {"add_reservations": [stack(template(workers=group(99)))]})
    assert stacks(story) == []
    small = template(workers=group(2))
    story.ok("PATCH", f"{path}?dry_run=true", {"add_reservations": [stack(small)]})
    assert stacks(story) == []
    added = story.ok("PATCH", path, {"add_reservations": [stack(small)]})
    assert amounts(added) == {"servers of flavor m1.large": 2}
    advance(story, 61 - minutes)
    story.ok("PATCH", path, {"add_reservations": [stack(template())]})  # needs no resources
    advance(story, 1)
    assert [present.status for present in stacks(story)] == ["UPDATE_COMPLETE"] * 2
    assert {item["status"] for item in shown(story, lease)["reservations"]} == {"active"}
    advance(story, 60)
    assert stacks(story) == []
    assert audit.audit(story.runtime) == []


def test_a_reservation_whose_stack_the_user_creates_can_let_climate_create_it(
    story: Story,
) -> None:
    lease = create(story, stack(on_start="nothing"))
    advance(story, 60)
    assert stacks(story) == []
    path = f"/v2/leases/{lease['id']}"
    story.ok("PATCH", path, change(lease, on_start="create"))
    advance(story, 1)
    [present] = stacks(story)
    assert (present.status, present.reservation_id) == (
        "UPDATE_COMPLETE",
        lease["reservations"][0]["id"],
    )
    assert audit.audit(story.runtime) == []
    for other in ("nothing", "manual"):
        story.problem(409, "PATCH", path, change(lease, on_start=other))
    advance(story, 60)
    assert stacks(story) == []


def test_a_change_that_loses_a_race_keeps_the_stack_of_the_other(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = create(story, stack(on_start="nothing"))
    path, cloud = f"/v2/leases/{lease['id']}", cloud_of(story)
    make_empty = cloud.make_empty

    def slow(*asked: Any) -> Any:
        monkeypatch.setattr(cloud, "make_empty", make_empty)
        story.ok("PATCH", path, change(lease, on_start="create"))
        return make_empty(*asked)

    monkeypatch.setattr(cloud, "make_empty", slow)
    story.problem(409, "PATCH", path, change(lease, on_start="create"))
    advance(story, 60)
    assert [each.status for each in stacks(story)] == ["UPDATE_COMPLETE"]
    assert shown(story, lease)["status"] == "ACTIVE"


def test_only_the_project_of_a_lease_adds_a_stack(story: Story) -> None:
    hosts = {"resource_type": "physical:host", "params": {"min": 1, "max": 1}}
    lease = create(story, hosts)
    body = {"add_reservations": [stack(template(workers=group(2)))]}
    other = story.call("PATCH", f"/v2/leases/{lease['id']}", body, token="boss:other:admin")
    assert other.status_code == 403, other.get_data(as_text=True)
    assert stacks(story) == []


def test_a_part_cannot_be_changed_or_removed_without_its_stack(story: Story) -> None:
    lease = create(story, stack())
    [own, part, *_] = lease["reservations"]
    change = {"reservations": [{"id": part["id"], "params": {"amount": 9}}]}
    path = f"/v2/leases/{lease['id']}"
    assert own["id"] in story.problem(409, "PATCH", path, change)["detail"]
    removal = {"remove_reservations": [part["id"]]}
    assert own["id"] in story.problem(409, "PATCH", path, removal)["detail"]
    body = {"reservations": [{"id": part["id"], "amount": 9}]}
    assert own["id"] in story.refused(409, "PUT", f"/v1/leases/{lease['id']}", body)


@pytest.mark.parametrize("running", [False, True])
def test_a_new_template_changes_all_parts_or_none(
    story: Story,
    running: bool,
) -> None:
    lease = create(story, stack())
    path = f"/v2/leases/{lease['id']}"
    if running:
        advance(story, 60)
    before = shown(story, lease)
    story.problem(409, "PATCH", path, change(lease, template=template(workers=group(99))))
    assert shown(story, lease) == before
    more = template(workers=group(6), gpu=server("g1.large"))
    changed = story.ok("PATCH", path, change(lease, template=more))
    staying = [item for item in changed["reservations"] if not is_leaving(item)]
    planned = amounts({"reservations": staying})
    assert planned == {"servers of flavor m1.large": 6, "servers of flavor g1.large": 1}
    advance(story, 1 if running else 60)
    now = shown(story, lease)
    live = [item for item in now["reservations"] if item["status"] == "active"]
    assert amounts({"reservations": live}) == planned
    [present] = stacks(story)
    assert present.status == "UPDATE_COMPLETE"
    assert audit.audit(story.runtime) == []


def is_leaving(reservation: dict[str, Any]) -> bool:
    return bool(reservation["details"].get("leaving"))


def fail(*_args: Any) -> None:
    raise RuntimeError("Heat is unavailable")


def test_a_stack_that_cannot_be_deleted_loses_its_parts_after_the_timeout(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = create(story, stack())
    advance(story, 60)
    with monkeypatch.context() as away:
        away.setattr(cloud_of(story), "delete", fail)
        advance(story, 60)
        assert effect_names(story, "close_slots") == []
        story.until(story.clock.now() + timedelta(minutes=12), step=20)
    assert len(effect_names(story, "delete_slots")) == 2
    after = shown(story, lease)
    assert after["status"] == "TERMINATED"
    statuses = [item["status"] for item in after["reservations"]]
    assert statuses == ["error", "deleted", "deleted", "deleted"]
    ends = [
        item["payload"]["error"]
        for item in story.published(lease["id"])
        if item["event_type"] == "lease.event.end_lease" and "error" in item["payload"]
    ]
    assert "Heat is unavailable" in ends[-1]
    [drift] = audit.audit(story.runtime)
    assert audit.repair(story.runtime, drift) is audit.Repair.DONE
    assert stacks(story) == []


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_missed_end_has_the_full_timeout_to_delete_the_stack(
    story: Story, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    lease = create(story, stack())
    advance(story, 60)
    with monkeypatch.context() as away:
        away.setattr(cloud_of(story), "delete", fail)
        if is_deleted:
            story.ok("DELETE", f"/v2/leases/{lease['id']}")
        advance(story, 60 + 30)
        story.until(story.clock.now() + timedelta(minutes=9), step=20)
        assert effect_names(story, "close_slots", "delete_slots") == []
    advance(story, 2)
    assert is_deleted or shown(story, lease)["status"] == "TERMINATED"
    assert story.event_types(lease["id"]).count("lease.catch_up") == (1 if is_deleted else 2)
    assert stacks(story) == []


def test_a_start_waits_for_the_stack_with_its_parts_ready(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = create(story, stack())
    with monkeypatch.context() as away:
        away.setattr(cloud_of(story), "update", fail)
        advance(story, 60)
        assert shown(story, lease)["status"] == "STARTING"
        assert len(effect_names(story, "open_slots")) == 2
    story.until(story.clock.now() + timedelta(minutes=2), step=10)
    assert shown(story, lease)["status"] == "ACTIVE"


def test_a_stopped_stack_is_suspended_if_climate_did_not_create_it(story: Story) -> None:
    cloud = cloud_of(story)
    existing = cloud.make_empty(Requester("admin", "admin"), "theirs", "none")
    cloud.update(None, existing, Source(template(web=server())), ["precious"])
    params = {"stack_id": existing.id, "on_start": "manual", "on_end": "delete"}
    lease = create(story, {"resource_type": "virtual:stack", "params": params})
    path = f"/v2/leases/{lease['id']}/reservations/{lease['reservations'][0]['id']}"
    advance(story, 60)
    seen = []
    for verb in ("start", "stop", "start"):
        story.ok("POST", f"{path}/{verb}")
        advance(story, 0)
        [present] = stacks(story)
        assert "precious" in present.tags
        seen.append((present.status, present.reservation_id is not None))
        assert audit.audit(story.runtime) == []
    started, stopped = ("UPDATE_COMPLETE", True), ("SUSPEND_COMPLETE", False)
    assert seen == [started, stopped, started]
    part = lease["reservations"][1]["id"]
    assert story.problem(409, "POST", path.replace(path[-36:], f"{part}/stop"))["code"] == (
        "not_manual"
    )


def test_a_stack_that_is_stopped_while_it_starts_can_be_started_again(story: Story) -> None:
    lease = create(story, stack(template(web=server()), on_start="manual"))
    path = f"/v2/leases/{lease['id']}/reservations/{lease['reservations'][0]['id']}"
    advance(story, 60)
    story.ok("POST", f"{path}/start")
    story.run()  # climate sends the update, and waits for Heat
    for verb in ("stop", "start"):
        story.ok("POST", f"{path}/{verb}")
        advance(story, 1)
    [present] = stacks(story)
    assert cloud_of(story).current(present).template["resources"].keys() == {"web"}


def test_an_existing_stack_is_resumed_and_suspended_on_its_own_flavors_at_the_end(
    story: Story,
) -> None:
    cloud = cloud_of(story)
    existing = cloud.make_empty(Requester("admin", "admin"), "theirs", "none")
    own = Source(template(web=server()))
    cloud.update(None, existing, own, ["precious"])
    cloud.suspend(existing)
    requested = {"resource_type": "virtual:stack", "params": {"stack_id": existing.id}}
    lease = create(story, requested)
    assert amounts(lease) == {"servers of flavor m1.small": 1}
    advance(story, 60)
    [present] = stacks(story)
    assert (present.status, present.reservation_id) == (
        "UPDATE_COMPLETE",
        lease["reservations"][0]["id"],
    )
    advance(story, 60)
    assert shown(story, lease)["status"] == "TERMINATED"
    [present] = stacks(story)
    assert (present.status, present.reservation_id) == ("SUSPEND_COMPLETE", None)
    assert "precious" in present.tags
    updates = [effect for effect in story.cloud.effects() if effect["effect"] == "update_stack"]
    assert [item["flavors"] for item in updates] == [
        "m1.small",
        lease["reservations"][1]["id"],
        "m1.small",
    ]
    assert audit.audit(story.runtime) == []


def test_a_lease_deleted_before_its_start_leaves_no_stack(story: Story) -> None:
    lease = create(story, stack())
    story.call("DELETE", f"/v2/leases/{lease['id']}")
    advance(story, 1)
    assert stacks(story) == []


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"template": None}, "stack_id"),
    ({"template": "no template"}, "Cannot be read"),
    ({"on_end": "keep"}, "use suspend or delete"),
    ({"template": SHOP, "on_end": "suspend"}, "floatingips"),
    ({"template": template(web=server("m1.none"))}, "m1.none"),
    ({"template": template(web=server({"get_attr": ["a", "b"]}))}, "attribute of another"),
    ({"files": {"a": "x" * 600_000}}, "bytes"),
    ({"stack_name": "1"}, "letter"),
]


def test_rejects_invalid_parameters_with_a_reason(story: Story) -> None:
    for params, words in INVALID:
        body = request(story, stack(template(web=server()), **params))
        assert words in story.problem(400, "POST", "/v2/leases", body)["detail"]


def test_v1_creates_and_changes_a_stack_and_hides_its_template(story: Story) -> None:
    asked = {"resource_type": "virtual:stack", "template": SHOP, "stack_name": "shop"}
    lease = story.ok("POST", "/v1/leases", story.lease_body(reservations=[asked]))["lease"]
    [own, *parts] = lease["reservations"]
    assert {item["stack"] for item in parts} == {own["id"]}
    assert "template" not in own
    assert own["stack_name"] == "shop"
    later = {**asked, "id": own["id"], "template": template(workers=group(2))}
    body = {"reservations": [later]}
    changed = story.ok("PUT", f"/v1/leases/{lease['id']}", body)["lease"]
    assert [item.get("part") for item in changed["reservations"]] == [
        None,
        "servers of flavor m1.large",
    ]


def test_the_stack_is_not_created_before_its_parts_are_ready(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = create(story, stack())
    plugin: Any = story.runtime.plugins["flavor:instance"]
    with monkeypatch.context() as away:
        away.setattr(plugin.cloud, "set_slots", fail)
        advance(story, 60)
        assert effect_names(story, "update_stack") == []
    story.until(story.clock.now() + timedelta(minutes=2), step=10)
    assert shown(story, lease)["status"] == "ACTIVE"


def test_rejects_a_change_whose_plan_is_outdated(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = create(story, stack())
    path, cloud = f"/v2/leases/{lease['id']}", cloud_of(story)
    preview = cloud.preview

    def slow(*asked: Any) -> Any:
        monkeypatch.setattr(cloud, "preview", preview)
        story.ok("PATCH", path, change(lease, template=template(workers=group(2))))
        return preview(*asked)

    monkeypatch.setattr(cloud, "preview", slow)
    refusal = story.problem(409, "PATCH", path, change(lease, template=template(web=server())))
    assert refusal["code"] == "lease_busy"
    live = [item for item in shown(story, lease)["reservations"] if item["status"] != "deleted"]
    assert amounts({"reservations": live}) == {"servers of flavor m1.large": 2}


def volume(size: int, type_: str | None = None) -> dict[str, Any]:
    return {"type": "OS::Cinder::Volume", "properties": {"size": size, "volume_type": type_}}


def test_volumes_are_reserved_by_type_and_created_of_the_reserved_type(story: Story) -> None:
    room = {"gigabytes": 100, "volumes": 10}
    body = {"resource_type": "virtual:volume", "name": "silver", "properties": room}
    story.ok("POST", "/v2/resources", body)
    disks = template(small=volume(5, "silver"), large=volume(20))
    problem = story.problem(400, "POST", "/v2/leases", request(story, stack(disks)))
    assert "volume_type" in problem["detail"]
    lease = create(story, stack(disks, volume_type="silver"))
    [own, part] = lease["reservations"]
    assert (part["params"]["amount"], part["params"]["size"]) == (2, 13)
    assert own["params"]["reserves"]["volumes"] == [
        {"volume_type": "silver", "amount": 2, "size": 13}
    ]
    advance(story, 60)
    [update] = [effect for effect in story.cloud.effects() if effect["effect"] == "update_stack"]
    made = json.loads(update["source"])["template"]["resources"]
    assert made["large"]["properties"]["volume_type"] == part["details"]["reserved_type"]
    assert part["details"]["reserved_type"] in json.dumps(made["small"])
    advance(story, 60)
    assert stacks(story) == []
    assert audit.audit(story.runtime) == []


def test_a_running_stack_moves_to_another_default_type_of_volumes(story: Story) -> None:
    for name in ("silver", "gold"):
        room = {"gigabytes": 100, "volumes": 10}
        body = {"resource_type": "virtual:volume", "name": name, "properties": room}
        story.ok("POST", "/v2/resources", body)
    lease = create(story, stack(template(data=volume(20)), volume_type="silver"))
    advance(story, 60)
    path = f"/v2/leases/{lease['id']}"
    after = story.ok("PATCH", path, change(lease, volume_type="gold"))
    advance(story, 1)
    new = next(item for item in after["reservations"] if "gold" in item["params"].get("part", ""))
    update = [each for each in story.cloud.effects() if each["effect"] == "update_stack"][-1]
    made = json.loads(update["source"])["template"]["resources"]["data"]["properties"]
    assert made["volume_type"] == new["details"]["reserved_type"]


def test_every_request_rejects_a_template_beyond_the_limits(story: Story) -> None:
    lease = create(story, stack())
    nested = "heat_template_version: x\na:\n" + "- " * 1_000 + "x"
    change = {"id": lease["reservations"][0]["id"], "params": {"template": nested}}
    search = {"duration": 60, "end_by": story.moment(600), "reservations": [stack(nested)]}
    v1 = {"resource_type": "virtual:stack", "template": nested}
    query = urlencode(
        {
            "resource_type": "virtual:stack",
            "end": story.moment(600),
            "params": json.dumps({"template": nested}),
        }
    )
    for method, path, body in [
        ("POST", "/v1/leases", story.lease_body(reservations=[v1])),
        ("POST", "/v2/leases", request(story, stack(nested))),
        ("PATCH", f"/v2/leases/{lease['id']}", {"reservations": [change]}),
        ("POST", "/v2/availability/search", search),
        ("GET", f"/v2/availability?{query}", None),
    ]:
        response = story.call(method, path, body)
        assert response.status_code == 400, path
        assert "nested deeper than 64 levels" in response.get_data(as_text=True), path
