"""Reservations of virtual:stack: a stack, and room for all that it can ever consist of."""

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from climate.manager import audit
from climate.plugins.base import Requester
from climate.plugins.stacks.cloud import Stack
from climate.plugins.stacks.template import Source
from tests.service import Story

MakeStory = Callable[..., Story]
PLUGINS = [
    "physical.host.plugin",
    "flavor.instance.plugin",
    "virtual.floatingip.plugin",
    "virtual.volume.plugin",
    "virtual.stack.plugin",
]
NETWORK = "sim-public"


@pytest.fixture
def story(make_story: MakeStory, hosts_template: Path, tmp_path: Path) -> Story:
    """Return a service that reserves three hosts of 16 VCPU and one of 64 with GPUs."""
    shutil.copy(hosts_template, tmp_path / "climate.sqlite")
    shutil.copy(hosts_template.parent / "cloud", tmp_path / "cloud")
    made = make_story(manager__plugins=PLUGINS)
    for last in range(2, 6):
        body = {"floating_network_id": NETWORK, "floating_ip_address": f"198.51.100.{last}"}
        made.ok("POST", "/v1/floatingips", body)
    return made


def server(flavor: Any = "m1.small", **more: Any) -> dict[str, Any]:
    return {"type": "OS::Nova::Server", "properties": {"flavor": flavor, **more}}


def group(largest: Any = 4) -> dict[str, Any]:
    properties = {"min_size": 1, "max_size": largest, "resource": server({"get_param": "flavor"})}
    return {"type": "OS::Heat::AutoScalingGroup", "properties": properties}


def address() -> dict[str, Any]:
    return {"type": "OS::Neutron::FloatingIP", "properties": {"floating_network": NETWORK}}


def template(**resources: Any) -> dict[str, Any]:
    return {
        "heat_template_version": "2016-10-14",
        "parameters": {"flavor": {"type": "string", "default": "m1.large"}},
        "resources": resources,
    }


SHOP = template(web=server(), workers=group(), address=address())


def stack(source: Any = SHOP, **params: Any) -> dict[str, Any]:
    """Return a request for a stack."""
    return {"resource_type": "virtual:stack", "params": {"template": source, **params}}


def asking(story: Story, *reservations: dict[str, Any], first: float = 60) -> dict[str, Any]:
    return story.asking(first, 120, reservations=list(reservations))


def lease_of(story: Story, *reservations: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return dict(story.ok("POST", "/v2/leases", asking(story, *reservations, **fields)))


def shown(story: Story, lease: dict[str, Any]) -> dict[str, Any]:
    return dict(story.ok("GET", f"/v2/leases/{lease['id']}"))


def amounts(lease: dict[str, Any]) -> dict[str, int]:
    """Return how much is reserved of what for the stack."""
    parts = [one["params"] for one in lease["reservations"] if "part" in one["params"]]
    return {one["part"]: one["amount"] for one in parts}


def stacks(story: Story) -> list[Stack]:
    cloud: Any = story.runtime.plugins["virtual:stack"]
    return list(cloud.cloud.stacks())


def let_pass(story: Story, minutes: float) -> None:
    """Let time pass, and what takes a moment more be done."""
    story.at(minutes)
    for _ in range(3):
        story.at(1 / 30)


def effects(story: Story, *names: str) -> list[str]:
    return [one["effect"] for one in story.cloud.effects() if one["effect"] in names]


def test_a_stack_has_reservations_for_all_that_it_can_consist_of(story: Story) -> None:
    lease = lease_of(story, stack())
    assert amounts(lease) == {
        "servers of flavor m1.small": 1,
        "servers of flavor m1.large": 4,
        f"floating IPs of network {NETWORK}": 1,
    }
    [own, *parts] = lease["reservations"]
    assert {one["params"]["stack"] for one in parts} == {own["id"]}
    assert own["params"]["reserves"]["servers"] == [
        {"flavor_id": "large", "flavor": "m1.large", "amount": 4},
        {"flavor_id": "small", "flavor": "m1.small", "amount": 1},
    ]


def test_it_is_admitted_as_a_whole_or_not_at_all(story: Story) -> None:
    there = 3 * (16 // 4) + 1000 // 91
    most = template(workers=group(there))
    problem = story.problem(
        409, "POST", "/v2/leases", asking(story, stack(template(web=server(), workers=group(99))))
    )
    assert "servers of flavor m1.large in the stack" in problem["detail"]
    assert problem["reservation"] == 0
    assert stacks(story) == []
    lease_of(story, stack(most))
    story.problem(409, "POST", "/v2/leases", asking(story, stack(template(workers=group(1)))))


def test_windows_are_found_in_which_all_of_it_fits(story: Story) -> None:
    lease_of(story, stack(template(workers=group(20))))
    body = {
        "reservations": [stack(template(workers=group(20)))],
        "duration": 3600,
        "start_after": story.moment(60),
        "end_by": story.moment(600),
    }
    [found, *_] = story.ok("POST", "/v2/availability/search", body)["windows"]
    assert found["start"] == story.moment(120)


def test_it_lives_on_reserved_room_from_start_to_end(story: Story) -> None:
    lease = lease_of(story, stack())
    [empty] = stacks(story)
    assert (empty.status, empty.plan) == ("CREATE_COMPLETE", None)
    let_pass(story, 60)
    ids = {one["params"].get("part"): one["id"] for one in lease["reservations"]}
    [update] = [one for one in story.cloud.effects() if one["effect"] == "update_stack"]
    small, large = ids["servers of flavor m1.small"], ids["servers of flavor m1.large"]
    assert sorted(update["flavors"].split(",")) == sorted([small, large])
    made = json.loads(update["source"])["template"]["resources"]["address"]
    assert made["external_id"].startswith("floatingip-")
    assert shown(story, lease)["status"] == "ACTIVE"
    let_pass(story, 60)
    assert shown(story, lease)["status"] == "TERMINATED"
    assert stacks(story) == []
    done = effects(story, "open_slots", "update_stack", "delete_stack", "close_slots")
    assert done == ["open_slots"] * 2 + ["update_stack", "delete_stack"] + ["close_slots"] * 2
    assert audit.audit(story.runtime) == []


def test_what_it_is_made_of_is_told_to_nobody(story: Story) -> None:
    lease = lease_of(story, stack(parameters={"word": "hunter2"}, files={"a": "hunter2"}))
    story.ok("PATCH", f"/v2/leases/{lease['id']}", {"name": "other"})
    for path in (f"/v2/leases/{lease['id']}", "/v2/leases", "/v1/leases"):
        assert "hunter2" not in json.dumps(story.ok("GET", path))
    story.run()
    assert "hunter2" not in json.dumps(story.ok("GET", "/v2/notifications"))


def test_a_part_is_changed_and_removed_with_its_stack_alone(story: Story) -> None:
    lease = lease_of(story, stack())
    [own, part, *_] = lease["reservations"]
    change = {"reservations": [{"id": part["id"], "params": {"amount": 9}}]}
    path = f"/v2/leases/{lease['id']}"
    assert own["id"] in story.problem(409, "PATCH", path, change)["detail"]
    removal = {"remove_reservations": [part["id"]]}
    assert own["id"] in story.problem(409, "PATCH", path, removal)["detail"]
    body = {"reservations": [{"id": part["id"], "amount": 9}]}
    assert own["id"] in story.refused(409, "PUT", f"/v1/leases/{lease['id']}", body)


def change(lease: dict[str, Any], **params: Any) -> dict[str, Any]:
    return {"reservations": [{"id": lease["reservations"][0]["id"], "params": params}]}


@pytest.mark.parametrize("running", [False, True])
def test_another_template_plans_it_anew_as_a_whole_or_not_at_all(
    story: Story,
    running: bool,
) -> None:
    lease = lease_of(story, stack())
    path = f"/v2/leases/{lease['id']}"
    if running:
        let_pass(story, 60)
    before = shown(story, lease)
    story.problem(409, "PATCH", path, change(lease, template=template(workers=group(99))))
    assert shown(story, lease) == before
    more = template(workers=group(6), gpu=server("g1.large"))
    changed = story.ok("PATCH", path, change(lease, template=more))
    told = amounts({"reservations": [o for o in changed["reservations"] if not leaves(o)]})
    assert told == {"servers of flavor m1.large": 6, "servers of flavor g1.large": 1}
    let_pass(story, 1 if running else 60)
    now = shown(story, lease)
    live = [one for one in now["reservations"] if one["status"] == "active"]
    assert amounts({"reservations": live}) == told
    [present] = stacks(story)
    assert present.status == "UPDATE_COMPLETE"
    assert audit.audit(story.runtime) == []


def leaves(reservation: dict[str, Any]) -> bool:
    return bool(reservation["details"].get("leaving"))


def broken(*_args: Any) -> None:
    raise RuntimeError("Heat has gone fishing")


def cloud_of(story: Story) -> Any:
    plugin: Any = story.runtime.plugins["virtual:stack"]
    return plugin.cloud


def test_a_stack_that_cannot_be_ended_loses_its_room_in_time_and_its_owner_is_told(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = lease_of(story, stack())
    let_pass(story, 60)
    with monkeypatch.context() as away:
        away.setattr(cloud_of(story), "delete", broken)
        let_pass(story, 60)
        assert effects(story, "close_slots") == []
        story.until(story.clock.now() + timedelta(minutes=12), step=20)
    assert len(effects(story, "delete_slots")) == 2
    after = shown(story, lease)
    assert after["status"] == "TERMINATED"
    statuses = [one["status"] for one in after["reservations"]]
    assert statuses == ["error", "deleted", "deleted", "deleted"]
    ends = [
        one["payload"]["error"]
        for one in story.published(lease["id"])
        if one["event_type"] == "lease.event.end_lease" and "error" in one["payload"]
    ]
    assert "gone fishing" in ends[-1]
    [difference] = audit.audit(story.runtime)
    assert audit.repair(story.runtime, difference)
    assert stacks(story) == []


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_stack_of_which_the_end_was_missed_is_given_as_much_time_as_any(
    story: Story, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    lease = lease_of(story, stack())
    let_pass(story, 60)
    with monkeypatch.context() as away:
        away.setattr(cloud_of(story), "delete", broken)
        if is_deleted:
            story.ok("DELETE", f"/v2/leases/{lease['id']}")
        let_pass(story, 60 + 30)
        story.until(story.clock.now() + timedelta(minutes=9), step=20)
        assert effects(story, "close_slots", "delete_slots") == []
    let_pass(story, 2)
    assert is_deleted or shown(story, lease)["status"] == "TERMINATED"
    assert story.told(lease["id"]).count("lease.catch_up") == (1 if is_deleted else 2)
    assert stacks(story) == []


def test_a_start_waits_for_the_cloud_and_the_parts_are_there_meanwhile(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = lease_of(story, stack())
    with monkeypatch.context() as away:
        away.setattr(cloud_of(story), "update", broken)
        let_pass(story, 60)
        assert shown(story, lease)["status"] == "STARTING"
        assert len(effects(story, "open_slots")) == 2
    story.until(story.clock.now() + timedelta(minutes=2), step=10)
    assert shown(story, lease)["status"] == "ACTIVE"


def test_a_stack_that_is_there_is_resumed_and_at_the_end_back_on_its_own_flavors_suspended(
    story: Story,
) -> None:
    cloud = cloud_of(story)
    there = cloud.make_empty(Requester("admin", "admin"), "theirs", "none")
    own = Source(template(web=server()))
    cloud.update(None, there, own, ["precious"])
    cloud.suspend(there)
    asked = {"resource_type": "virtual:stack", "params": {"stack_id": there.id}}
    lease = lease_of(story, asked)
    assert amounts(lease) == {"servers of flavor m1.small": 1}
    let_pass(story, 60)
    [present] = stacks(story)
    assert (present.status, present.reservation_id) == (
        "UPDATE_COMPLETE",
        lease["reservations"][0]["id"],
    )
    let_pass(story, 60)
    assert shown(story, lease)["status"] == "TERMINATED"
    [present] = stacks(story)
    assert (present.status, present.reservation_id) == ("SUSPEND_COMPLETE", None)
    assert "precious" in present.tags
    updates = [one for one in story.cloud.effects() if one["effect"] == "update_stack"]
    assert [one["flavors"] for one in updates] == [
        "m1.small",
        lease["reservations"][1]["id"],
        "m1.small",
    ]
    assert audit.audit(story.runtime) == []


def test_a_lease_that_is_removed_before_its_start_leaves_no_stack(story: Story) -> None:
    lease = lease_of(story, stack())
    story.call("DELETE", f"/v2/leases/{lease['id']}")
    let_pass(story, 1)
    assert stacks(story) == []


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"template": None}, "stack_id"),
        ({"template": "no template"}, "Cannot be read"),
        ({"on_end": "keep"}, "use suspend or delete"),
        ({"template": SHOP, "on_end": "suspend"}, "floatingips"),
        ({"template": template(web=server("m1.none"))}, "m1.none"),
        ({"template": template(web=server({"get_attr": ["a", "b"]}))}, "attribute of another"),
        ({"files": {"a": "x" * 600_000}}, "bytes"),
        ({"stack_name": "1"}, "letter"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(
    story: Story, params: dict[str, Any], words: str
) -> None:
    asked = {"resource_type": "virtual:stack", "params": {"template": template(web=server())}}
    asked["params"] |= params  # type: ignore[operator]
    problem = story.problem(400, "POST", "/v2/leases", asking(story, asked))
    assert words in problem["detail"]


def test_it_can_be_asked_for_by_v1_and_is_shown_there_without_its_template(story: Story) -> None:
    asked = {"resource_type": "virtual:stack", "template": SHOP, "stack_name": "shop"}
    lease = story.ok("POST", "/v1/leases", story.lease_body(reservations=[asked]))["lease"]
    [own, *parts] = lease["reservations"]
    assert {one["stack"] for one in parts} == {own["id"]}
    assert "template" not in own
    assert own["stack_name"] == "shop"
    later = {**asked, "id": own["id"], "template": template(workers=group(2))}
    body = {"reservations": [later]}
    changed = story.ok("PUT", f"/v1/leases/{lease['id']}", body)["lease"]
    assert [one.get("part") for one in changed["reservations"]] == [
        None,
        "servers of flavor m1.large",
    ]


def test_it_is_not_made_before_its_room_is_there(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = lease_of(story, stack())
    plugin: Any = story.runtime.plugins["flavor:instance"]
    with monkeypatch.context() as away:
        away.setattr(plugin.cloud, "set_slots", broken)
        let_pass(story, 60)
        assert effects(story, "update_stack") == []
    story.until(story.clock.now() + timedelta(minutes=2), step=10)
    assert shown(story, lease)["status"] == "ACTIVE"


def test_a_change_that_was_planned_on_what_is_no_more_so_is_refused(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = lease_of(story, stack())
    path, cloud = f"/v2/leases/{lease['id']}", cloud_of(story)
    preview = cloud.preview

    def slow(*asked: Any) -> Any:
        monkeypatch.setattr(cloud, "preview", preview)
        story.ok("PATCH", path, change(lease, template=template(workers=group(2))))
        return preview(*asked)

    monkeypatch.setattr(cloud, "preview", slow)
    refusal = story.problem(409, "PATCH", path, change(lease, template=template(web=server())))
    assert refusal["code"] == "lease_busy"
    live = [one for one in shown(story, lease)["reservations"] if one["status"] != "deleted"]
    assert amounts({"reservations": live}) == {"servers of flavor m1.large": 2}


def volume(size: int, type_: str | None = None) -> dict[str, Any]:
    return {"type": "OS::Cinder::Volume", "properties": {"size": size, "volume_type": type_}}


def test_volumes_are_reserved_by_type_and_made_of_the_reserved_one(story: Story) -> None:
    room = {"gigabytes": 100, "volumes": 10}
    body = {"resource_type": "virtual:volume", "name": "silver", "properties": room}
    story.ok("POST", "/v2/resources", body)
    disks = template(small=volume(5, "silver"), large=volume(20))
    problem = story.problem(400, "POST", "/v2/leases", asking(story, stack(disks)))
    assert "volume_type" in problem["detail"]
    lease = lease_of(story, stack(disks, volume_type="silver"))
    [own, part] = lease["reservations"]
    assert (part["params"]["amount"], part["params"]["size"]) == (2, 13)
    assert own["params"]["reserves"]["volumes"] == [
        {"volume_type": "silver", "amount": 2, "size": 13}
    ]
    let_pass(story, 60)
    [update] = [one for one in story.cloud.effects() if one["effect"] == "update_stack"]
    made = json.loads(update["source"])["template"]["resources"]
    assert made["large"]["properties"]["volume_type"] == part["details"]["reserved_type"]
    assert part["details"]["reserved_type"] in json.dumps(made["small"])
    let_pass(story, 60)
    assert stacks(story) == []
    assert audit.audit(story.runtime) == []
