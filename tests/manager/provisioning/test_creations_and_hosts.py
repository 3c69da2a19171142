"""Leases for which climate creates servers, and whose hosts provisioners prepare."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from climate.manager.events import runner
from climate.manager.provisioning import creations
from tests.conftest import MakeStory
from tests.manager.provisioning import test_creations
from tests.manager.provisioning.conftest import OPTIONS
from tests.manager.provisioning.test_creations import (
    Building,
    ask,
    before_start,
    learned,
    moment,
    servers,
    show,
    teach,
)
from tests.support.bodies import copy_hosts, effect_names
from tests.support.provisioners import plan, preparations, readiness, report
from tests.support.service import Story, hosts

# Managers ask every five seconds here, too.
_patient = test_creations._patient


@pytest.fixture
def story(make_story: MakeStory, hosts_template: Path, tmp_path: Path) -> Story:
    copy_hosts(hosts_template, tmp_path)
    return make_story(**{**OPTIONS, **test_creations.OPTIONS})


@pytest.fixture
def building(story: Story, monkeypatch: pytest.MonkeyPatch) -> Building:
    return Building(story, monkeypatch)


def both(story: Story, *times: float, **fields: Any) -> dict[str, Any]:
    """Create a lease of a whole host, and of a server that climate creates."""
    return ask(
        story, *times, reservations=[hosts(), servers()], **{"start_when": "ready", **fields}
    )


def prepare(story: Story) -> None:
    """Let provisioners make ready the hosts that managers want prepared."""
    plan(story)
    for item in preparations(story):
        report(story, item, "accepted")
        report(story, item, "ready")


def test_a_creation_waits_for_the_hosts_on_which_it_puts_servers(
    story: Story, building: Building
) -> None:
    lease = ask(story, start_when="ready")
    story.until(moment(lease["start"]) + timedelta(minutes=2), step=20)
    shown = show(story, lease)
    assert (shown["status"], shown["ready_at"]) == ("PENDING", None)
    assert shown["start_delayed_at"] is not None
    assert effect_names(story, "boot") == []
    story.ok("PATCH", f"/v2/leases/{lease['id']}", {"start_when": "scheduled"})
    story.until(story.clock.now() + timedelta(seconds=50), step=5)
    assert show(story, lease)["status"] == "ACTIVE"
    assert learned(story) == [pytest.approx(40.0, abs=5)], "without the time for the hosts"


def test_hosts_are_prepared_for_the_beginning_of_the_lead(story: Story, building: Building) -> None:
    lease = both(story)
    story.at(40)
    prepare(story)
    story.ok("PATCH", f"/v2/leases/{lease['id']}", {"end": story.moment(180)})
    needed = {item["needed_at"] for item in preparations(story, "state=ready")}
    assert needed == {lease["booked_from"]}
    near = both(story, 1, 60)
    plan(story)
    assert [item["lease_id"] for item in preparations(story)] == [near["id"]] * 2


def test_a_slow_preparation_begins_in_time_for_the_lead(
    make_story: MakeStory, hosts_template: Path, tmp_path: Path
) -> None:
    copy_hosts(hosts_template, tmp_path)
    slow = {"provisioning__prior": 1800}
    story = make_story(**{**OPTIONS, **test_creations.OPTIONS, **slow})
    lease = both(story)
    story.clock.advance((moment(lease["booked_from"]) - story.clock.now()).total_seconds() - 1799)
    plan(story)
    assert len(preparations(story)) == 2


def test_a_change_in_the_lead_keeps_the_preparations(story: Story, building: Building) -> None:
    lease = both(story)
    teach(story, 20)
    story.at(30)
    prepare(story)
    before_start(story, lease, 80)
    story.ok("PATCH", f"/v2/leases/{lease['id']}", {"end": story.moment(180)})
    plan(story)
    assert preparations(story) == []
    assert readiness(story, lease["id"])["waiting_for"] == []


def test_a_host_that_fails_in_the_lead_is_replaced(story: Story, building: Building) -> None:
    lease = both(story)
    story.at(40)
    plan(story)
    before_start(story, lease, 50)
    held = story.hosts_of(lease["id"])
    first, *_ = preparations(story)
    report(story, first, "accepted", claim_seconds=3600)
    report(story, first, "failed", reason="no power")
    plan(story)
    assert story.hosts_of(lease["id"]) != held


def test_failed_creations_do_not_end_the_wait_for_hosts(story: Story, building: Building) -> None:
    lease = both(story)
    story.at(40)
    plan(story)
    (instance,) = (r for r in lease["reservations"] if r["resource_type"] == "virtual:instance")
    for item in preparations(story):
        if item["reservation_id"] == instance["id"]:
            report(story, item, "accepted")
            report(story, item, "ready")
    building.failures = 1000
    before_start(story, lease, 10)
    assert building.failures < 1000, "the creation waits only for its own host"
    assert "lease.start_delayed" not in story.event_types(lease["id"])
    story.until(moment(lease["start"]) + timedelta(minutes=2), step=5)
    assert show(story, lease)["status"] == "PENDING"
    assert readiness(story, lease["id"])["waiting_for"] != []
    assert "lease.event.start_lease.error" not in story.event_types(lease["id"])


def test_an_attempt_that_begins_in_the_lead_never_hands_over_hosts(
    story: Story, building: Building, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creations, "_NOT_YET", timedelta(seconds=1))
    building.seconds = 1000
    lease = both(story, start_when="scheduled")
    story.at(30)
    prepare(story)
    before_start(story, lease, 5)
    call = runner._call_plugins

    def slow(*arguments: Any) -> Any:
        monkeypatch.setattr(runner, "_call_plugins", call)
        story.clock.advance(5)
        return call(*arguments)

    handed_over: list[list[str]] = []
    note = creations.note_ahead

    def noted(*arguments: Any) -> None:
        handed_over.append(effect_names(story, "add_host"))
        note(*arguments)

    monkeypatch.setattr(creations, "note_ahead", noted)
    monkeypatch.setattr(runner, "_call_plugins", slow)
    story.at(1 / 60)
    assert handed_over == [[]]
    assert len(effect_names(story, "add_host")) == 1, "the next attempt does"


def test_ready_at_is_when_the_servers_were_ready(story: Story, building: Building) -> None:
    lease = both(story, start_when="scheduled")
    story.at(30)
    prepare(story)
    assert show(story, lease)["ready_at"] is None
    before_start(story, lease, 10)
    assert moment(show(story, lease)["ready_at"]) > moment(lease["booked_from"])


def test_a_host_that_is_added_to_a_running_lease_is_prepared(
    story: Story, building: Building
) -> None:
    lease = ask(story, 0, 60, reservations=[hosts()])
    story.run()
    assert show(story, lease)["status"] == "ACTIVE"
    story.at(1)
    story.ok("PATCH", f"/v2/leases/{lease['id']}", {"add_reservations": [hosts()]})
    assert plan(story) == 1
    assert len(preparations(story)) == 1
    assert plan(story) == 0


def test_a_host_that_is_added_in_the_lead_does_not_change_ready_at(
    story: Story, building: Building
) -> None:
    lease = both(story, start_when="scheduled")
    story.at(30)
    prepare(story)
    before_start(story, lease, 30)
    with_host = {"add_reservations": [hosts()]}
    story.ok("PATCH", f"/v2/leases/{lease['id']}", with_host)
    before_start(story, lease, 28)
    plan(story)
    assert show(story, lease)["ready_at"] is not None


def test_ready_at_is_about_servers_if_no_host_is_prepared(
    make_story: MakeStory, hosts_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_hosts(hosts_template, tmp_path)
    nobody = {"provisioning__hosts": '["==", "$$hypervisor_type", "other"]'}
    story = make_story(**{**OPTIONS, **test_creations.OPTIONS, **nobody})
    Building(story, monkeypatch)
    lease = ask(story, start_when="ready")
    before_start(story, lease, 10)
    assert show(story, lease)["ready_at"] is not None
