"""climate creates servers and stacks before their lease starts, so that they are ready in time."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.on_start import Kind
from climate.db.provisioning import creation_times
from climate.db.resources import allocations, resources
from climate.db.tables.leases import EVENTS
from climate.manager.audit.cloud import audit
from climate.manager.audit.invariants import violations
from climate.manager.claims import Call, Result, Task
from climate.manager.events import outcomes, runner
from climate.manager.leases import healing
from climate.manager.process.runtime import Runtime
from climate.manager.provisioning import creations
from climate.plugins.base import NotYet
from tests.conftest import MakeStory
from tests.support.bodies import copy_hosts, effect_names
from tests.support.provisioners import synchronise_inventory
from tests.support.service import Story, hosts
from tests.support.waiting import rules, settle, waiting

SIZES = {"vcpus": 1, "memory_mb": 0, "disk_gb": 0, "affinity": None, "resource_properties": ""}
# The lead in seconds before climate has learned anything.
LEAD = 100
IMAGE = Kind("virtual:instance", "cirros")


class Building:
    """Lets each server take ``seconds`` from the first call on, by the clock of the story."""

    def __init__(self, story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 40.0
        self.failures = 0
        self.requests: list[Any] = []
        #: What happens during the next call.
        self.meanwhile: Callable[[], object] = lambda: None
        self._story = story
        self._begun: dict[str, datetime] = {}
        self._cloud = story.runtime.plugins["virtual:instance"].cloud  # type: ignore[attr-defined]
        self._boot: Callable[..., list[str]] = self._cloud.boot
        monkeypatch.setattr(self._cloud, "boot", self.boot)

    def boot(self, trust_id: str | None, boot: Any) -> list[str]:
        self.meanwhile()
        self.requests.append(boot)
        if self.failures:
            self.failures -= 1
            raise RuntimeError("no valid host")
        now = self._story.clock.now()
        begun = self._begun.setdefault(boot.reservation_id, now)
        if boot.known < boot.amount and (now - begun).total_seconds() < self.seconds:
            raise NotYet("servers are being built")
        return self._boot(trust_id, boot)


OPTIONS: dict[str, Any] = {
    "manager__plugins": ["physical.host.plugin", "virtual.instance.plugin"],
    "creation__enabled": True,
    "creation__prior": LEAD,
    "creation__longest": LEAD,
    "creation__margin": 1.0,
}


@pytest.fixture
def story(make_story: MakeStory, hosts_template: Path, tmp_path: Path) -> Story:
    copy_hosts(hosts_template, tmp_path)
    return make_story(**OPTIONS)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let managers ask every five seconds whether servers are built, as each time takes 25 ms."""
    monkeypatch.setattr(creations, "_NOT_YET", timedelta(seconds=5))


@pytest.fixture
def building(story: Story, monkeypatch: pytest.MonkeyPatch) -> Building:
    return Building(story, monkeypatch)


def servers(amount: int = 1, **params: Any) -> dict[str, Any]:
    """Return a request for servers that climate creates at the start."""
    more = {"amount": amount, "on_start": "create", "server": {"imageRef": "cirros"}}
    return {"resource_type": "virtual:instance", "params": {**SIZES, **more, **params}}


def ask(story: Story, first: float = 60, last: float = 120, **fields: Any) -> dict[str, Any]:
    body = story.asking(first, last, **{"reservations": [servers()], **fields})
    return dict(story.ok("POST", "/v2/leases", body))


def show(story: Story, lease: dict[str, Any]) -> dict[str, Any]:
    return dict(story.ok("GET", f"/v2/leases/{lease['id']}"))


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def before_start(story: Story, lease: dict[str, Any], seconds: float) -> None:
    """Move the clock to ``seconds`` before the start of a lease, one second at a time at last."""
    target = moment(lease["start"]) - timedelta(seconds=seconds)
    near = target - timedelta(seconds=LEAD + 50)
    story.until(near)
    story.until(target, step=1)


def learned(story: Story) -> list[float]:
    with story.runtime.database.read() as session:
        return list(creation_times.find_all(session).get(IMAGE, []))


def teach(story: Story, seconds: float) -> None:
    """Let twelve earlier creations of the image have taken ``seconds``."""
    kept, now = timedelta(days=90), story.clock.now()

    def work(session: Session) -> None:
        for _ in range(12):
            creation_times.remember(session, IMAGE, seconds, now, kept)

    story.runtime.database.write(work)


def test_servers_are_ready_when_the_lease_starts(story: Story, building: Building) -> None:
    lease = ask(story)
    assert moment(lease["start"]) - moment(lease["booked_from"]) == timedelta(seconds=LEAD)

    before_start(story, lease, LEAD + 1)
    assert show(story, lease)["status"] == "PENDING"
    before_start(story, lease, LEAD - 1)
    assert show(story, lease)["status"] == "PENDING"
    assert effect_names(story, "boot") == []
    before_start(story, lease, 10)
    shown = show(story, lease)
    assert shown["status"] == "PENDING"
    assert moment(shown["ready_at"]) == moment(lease["start"]) - timedelta(seconds=LEAD - 40)
    assert shown["reservations"][0]["details"]["servers"]
    assert list(violations(story.runtime.store)) == []

    story.until(moment(lease["start"]))
    assert show(story, lease)["status"] == "ACTIVE"
    assert len(effect_names(story, "boot")) == 1
    assert "lease.event.start_lease" in story.event_types(lease["id"])
    assert learned(story) == [40.0]


def test_other_resources_of_the_lease_wait_for_its_start(story: Story, building: Building) -> None:
    lease = ask(story, reservations=[hosts(), servers()])
    before_start(story, lease, 10)
    assert show(story, lease)["status"] == "PENDING"
    assert "hand_over" not in "".join(effect_names(story, ""))
    story.until(moment(lease["start"]))
    assert show(story, lease)["status"] == "ACTIVE"


def test_no_other_lease_gets_the_capacity_in_the_lead(story: Story, building: Building) -> None:
    for _ in range(4):
        ask(story, reservations=[servers(amount=1, vcpus=8)])
    until_start = story.asking(30, 60, reservations=[hosts(4, 4)])
    problem = story.problem(409, "POST", "/v2/leases", until_start)
    assert "free" in problem["detail"]
    story.ok("POST", "/v2/leases", story.asking(30, 58, reservations=[hosts(4, 4)]))


def test_a_refusal_explains_the_lead_and_offers_a_later_start(
    story: Story, building: Building
) -> None:
    story.ok("POST", "/v2/leases", story.asking(30, 60, reservations=[hosts(4, 4)]))
    body = story.asking(60, 120, reservations=[servers()])
    problem = story.problem(409, "POST", "/v2/leases", body)
    assert "100 seconds before the start" in problem["detail"]
    later = next(each for each in problem["alternatives"] if each["differs"] == "later")
    assert moment(later["start"]) == moment(body["start"]) + timedelta(seconds=LEAD)
    asked = {**body, "start": later["start"], "end": later["end"]}
    story.ok("POST", "/v2/leases", asked)


def test_the_earliest_window_leaves_time_for_the_creation(story: Story, building: Building) -> None:
    story.ok("POST", "/v2/leases", story.asking(30, 60, reservations=[hosts(4, 4)]))
    search = {"start_after": story.moment(20), "end_by": story.moment(600), "duration": 1800}
    asked = {**search, "reservations": [servers()]}
    (window, *_) = story.ok("POST", "/v2/availability/search", asked)["windows"]
    assert moment(window["start"]) == moment(story.moment(60)) + timedelta(seconds=LEAD)


def test_a_lease_that_starts_as_soon_as_possible_does_not_wait_for_its_lead(
    story: Story, building: Building
) -> None:
    body = {"name": "soon", "start": "asap", "duration": 3600, "end_by": story.moment(60)}
    lease = story.ok("POST", "/v2/leases", {**body, "reservations": [servers()]})
    assert lease["start"] == lease["booked_from"] == story.moment(0)


def test_a_lease_that_starts_now_is_created_at_once(story: Story, building: Building) -> None:
    lease = ask(story, 0, 60)
    assert lease["booked_from"] == lease["start"]
    story.run()
    story.until(story.clock.now() + timedelta(seconds=45), step=1)
    assert show(story, lease)["status"] == "ACTIVE"
    assert learned(story) == [pytest.approx(40.0, abs=1)]


def test_the_lead_follows_from_earlier_creations(story: Story, building: Building) -> None:
    teach(story, 20)
    lease = ask(story)
    lead = moment(lease["start"]) - moment(lease["booked_from"])
    assert timedelta(seconds=20) <= lead < timedelta(seconds=60)


def test_creation_begins_later_than_booked_if_it_has_become_quicker(
    story: Story, building: Building
) -> None:
    lease = ask(story)
    teach(story, 20)
    before_start(story, lease, 61)
    assert show(story, lease)["status"] == "PENDING"
    building.seconds = 20
    before_start(story, lease, 1)
    assert show(story, lease)["ready_at"]


def test_a_creation_that_is_late_delays_the_start(story: Story, building: Building) -> None:
    building.seconds = LEAD + 30
    lease = ask(story)
    story.until(moment(lease["start"]) - timedelta(seconds=LEAD + 20))
    story.until(moment(lease["start"]) + timedelta(seconds=10), step=1)
    assert show(story, lease)["status"] == "STARTING"
    story.until(moment(lease["start"]) + timedelta(seconds=32), step=1)
    assert show(story, lease)["status"] == "ACTIVE"
    told = [each for each in story.published(lease["id"]) if "delayed" in each["event_type"]]
    assert len(told) == 1
    assert "servers are being built" in told[0]["payload"]["waiting_for"][0]
    assert learned(story) == [pytest.approx(LEAD + 30, abs=2)]


def test_a_failed_creation_is_retried_before_the_start_and_not_learned(
    story: Story, building: Building
) -> None:
    building.failures = 1
    lease = ask(story)
    before_start(story, lease, 5)
    assert show(story, lease)["ready_at"]
    story.until(moment(lease["start"]))
    assert show(story, lease)["status"] == "ACTIVE"
    assert learned(story) == []


def test_a_lease_that_is_deleted_in_its_lead_leaves_nothing(
    story: Story, building: Building
) -> None:
    lease = ask(story)
    before_start(story, lease, 30)
    story.ok("DELETE", f"/v2/leases/{lease['id']}")
    story.at(0.1)
    story.problem(404, "GET", f"/v2/leases/{lease['id']}")
    assert (
        story.runtime.plugins["virtual:instance"].cloud.slot_hosts(  # type: ignore[attr-defined]
            lease["reservations"][0]["id"]
        )
        == []
    )
    assert list(violations(story.runtime.store)) == []


def test_a_moved_lease_is_created_before_its_new_start(story: Story, building: Building) -> None:
    lease = ask(story)
    body = {"start": story.moment(30), "end": story.moment(90)}
    moved = story.ok("PATCH", f"/v2/leases/{lease['id']}", body)
    assert moment(moved["booked_from"]) == moment(moved["start"]) - timedelta(seconds=LEAD)
    before_start(story, moved, 10)
    assert show(story, moved)["ready_at"]


def test_reminders_are_sent_while_climate_creates(story: Story, building: Building) -> None:
    at = (story.clock.now() + timedelta(seconds=3570)).strftime("%Y-%m-%dT%H:%M:%SZ")
    lease = ask(story, events=[{"type": "before_start_lease", "at": at}])
    before_start(story, lease, 31)
    assert "lease.event.before_start_lease" not in story.event_types(lease["id"])
    before_start(story, lease, 29)
    assert "lease.event.before_start_lease" in story.event_types(lease["id"])


def test_a_lease_of_servers_may_start_when_they_are_ready(story: Story, building: Building) -> None:
    lease = ask(story, start_when="ready")
    before_start(story, lease, 10)
    assert show(story, lease)["ready_at"]
    story.until(moment(lease["start"]))
    assert show(story, lease)["status"] == "ACTIVE"
    now = story.asking(0, 60, reservations=[servers()], start_when="ready")
    story.ok("POST", "/v2/leases", now)
    nothing = story.asking(reservations=[servers(on_start="nothing", server=None)])
    problem = story.problem(400, "POST", "/v2/leases", {**nothing, "start_when": "ready"})
    assert problem["code"] == "not_provisioned"


def test_a_failing_creation_delays_no_other_resource(story: Story, building: Building) -> None:
    building.failures = 1000
    lease = ask(story, reservations=[hosts(), servers()])
    before_start(story, lease, 1)
    shown = show(story, lease)
    assert (shown["status"], shown["reservations"][1]["status"]) == ("PENDING", "pending")
    assert effect_names(story, "add_host") == []
    story.until(moment(lease["start"]))
    assert len(effect_names(story, "add_host")) == 1
    building.failures = 0
    story.until(story.clock.now() + timedelta(minutes=3))
    assert show(story, lease)["status"] == "ACTIVE"


def test_the_lead_is_no_use(make_story: MakeStory, hosts_template: Path, tmp_path: Path) -> None:
    copy_hosts(hosts_template, tmp_path)
    limits = {"limits__enabled": True, "limits__project_host_hours": 1, "limits__project_vcpus": 66}
    story = make_story(**OPTIONS, **limits)
    ask(story, reservations=[hosts(), servers(vcpus=2)])
    ask(story, 0, 60, reservations=[servers(vcpus=16)])
    ask(story, 120, 180, reservations=[servers(vcpus=16)])


def test_a_smaller_lease_needs_no_longer_lead(story: Story, building: Building) -> None:
    teach(story, 5)
    lease = ask(story, reservations=[servers(2)])
    story.ok("POST", "/v2/leases", story.asking(30, 59, reservations=[hosts(4, 4)]))
    teach(story, 300)
    story.clock.advance(61)
    (reservation,) = lease["reservations"]
    change = {"id": reservation["id"], "params": servers(1)["params"]}
    path = f"/v2/leases/{lease['id']}"
    changed = story.ok("PATCH", path, {"reservations": [change]})
    assert changed["booked_from"] == lease["booked_from"]


def test_a_lease_that_moves_near_is_booked_from_now_on(story: Story, building: Building) -> None:
    lease = ask(story)
    body = {"start": story.moment(1), "end": story.moment(61)}
    moved = story.ok("PATCH", f"/v2/leases/{lease['id']}", body)
    assert moved["booked_from"] == story.moment(0)


def test_servers_of_a_lease_in_its_lead_follow_its_changes(
    story: Story, building: Building
) -> None:
    building.seconds = 10
    lease = ask(story, reservations=[servers(), servers(on_start="nothing", server=None)])
    before_start(story, lease, 80)
    assert show(story, lease)["ready_at"]
    first, second = (each["id"] for each in lease["reservations"])
    other = servers(server={"imageRef": "other"})
    later = servers(server={"imageRef": "later"})
    path = f"/v2/leases/{lease['id']}"
    changes = [
        {"id": first, "params": servers(2)["params"]},
        {"id": second, "params": later["params"]},
    ]
    body = {"reservations": changes, "add_reservations": [other], "end": story.moment(180)}
    story.ok("PATCH", path, body)
    assert show(story, lease)["ready_at"] is None
    problem = story.problem(400, "PATCH", path, {"start": story.moment(60)})
    assert "has started" in problem["detail"]
    problem = story.problem(400, "PATCH", path, {"end": "now"})
    assert "delete it" in problem["detail"]
    before_start(story, lease, 50)
    assert show(story, lease)["ready_at"]
    assert len(effect_names(story, "boot")) == 4
    story.until(moment(lease["start"]))
    assert show(story, lease)["status"] == "ACTIVE"
    assert list(violations(story.runtime.store)) == []
    with story.runtime.database.read() as session:
        assert list(creation_times.find_all(session)) == [IMAGE], "only from the beginning on"
    too_much = {"add_reservations": [hosts(4, 4)]}
    assert "seconds before the start" not in story.problem(409, "PATCH", path, too_much)["detail"]


def test_servers_in_the_lead_are_started_again_if_their_host_fails(
    story: Story, building: Building
) -> None:
    lease = ask(story)
    before_start(story, lease, 40)
    (reservation,) = lease["reservations"]
    with story.runtime.database.read() as session:
        (host,) = allocations.held(session, [reservation["id"]])[reservation["id"]]
    story.cloud.fail_host(f"sim-{host}")
    for _ in range(2):
        synchronise_inventory(story)
    before_start(story, lease, 30)
    cloud = story.runtime.plugins["virtual:instance"].cloud  # type: ignore[attr-defined]
    (new,) = cloud.slot_hosts(reservation["id"])
    assert new != f"sim-{host}"
    assert building.requests[-1].known == 0
    story.until(moment(lease["start"]))
    assert show(story, lease)["status"] == "ACTIVE"


def test_a_lease_that_is_being_created_is_no_leftover(story: Story, building: Building) -> None:
    lease = ask(story)
    before_start(story, lease, 30)
    assert show(story, lease)["ready_at"]
    assert [drift.description for drift in audit(story.runtime)] == []


def test_a_promise_of_servers_is_displaced_also_in_its_lead(
    story: Story, building: Building
) -> None:
    rules(story, promises=4, is_firm=False)
    ask(story, 0, 30, reservations=[hosts(4, 4)])
    body = {**waiting(1, 60), "reservations": [servers(4, vcpus=16)]}
    waits = show(story, story.ok("POST", "/v2/leases", body))
    assert waits["booked_from"] == story.moment(30)
    asked = story.asking(30, 31, reservations=[hosts(4, 4)])
    story.ok("POST", "/v2/leases", asked)
    shown = show(story, waits)
    assert (shown["status"], shown["booked_from"]) == ("WAITING", None)


def test_a_creation_that_another_manager_took_over_is_not_learned(
    story: Story, building: Building
) -> None:
    lease = ask(story)
    before_start(story, lease, 90)
    count = sa.update(EVENTS).where(EVENTS.c.kind == "start_lease").values(attempt=1)
    story.runtime.database.write(lambda session: session.execute(count))
    before_start(story, lease, 10)
    assert show(story, lease)["ready_at"]
    assert learned(story) == []


def test_servers_that_are_added_later_are_ready_at_the_start(
    story: Story, building: Building
) -> None:
    lease = ask(story, reservations=[hosts()])
    assert lease["booked_from"] == lease["start"]
    path = f"/v2/leases/{lease['id']}"
    changed = story.ok("PATCH", path, {"add_reservations": [servers()]})
    assert moment(changed["booked_from"]) == moment(lease["start"]) - timedelta(seconds=LEAD)
    before_start(story, lease, 10)
    assert show(story, lease)["ready_at"]


def test_servers_in_the_lead_stay_on_a_host_that_an_operator_disables(
    story: Story, building: Building
) -> None:
    lease = ask(story, reservations=[hosts(), servers()])
    before_start(story, lease, 30)
    whole, instance = (each["id"] for each in lease["reservations"])

    def held() -> dict[str, set[int]]:
        with story.runtime.database.read() as session:
            found = allocations.held(session, [whole, instance])
        return {id_: set(resources) for id_, resources in found.items()}

    before = held()
    now, ids = story.clock.now(), {*before[whole], *before[instance]}
    story.runtime.database.write(
        lambda session: resources.set_reservable(session, ids, now, reservable=False)
    )
    story.runtime.database.write(
        lambda session: healing.heal(story.runtime, (), lease["id"], session)
    )
    assert held()[instance] == before[instance]
    assert held()[whole] != before[whole]


def test_a_promise_that_moves_to_now_is_booked_from_now_on(
    story: Story, building: Building
) -> None:
    taken = [ask(story, *times, reservations=[hosts(4, 4)]) for times in ((0, 30), (31, 600))]
    body = {**waiting(1, 60), "reservations": [servers()]}
    promised = show(story, story.ok("POST", "/v2/leases", body))
    assert promised["booked_from"] == story.moment(600)
    for lease in taken:
        story.ok("DELETE", f"/v2/leases/{lease['id']}")
    settle(story)
    shown = show(story, promised)
    assert shown["start"] == shown["booked_from"] == story.moment(0)


def test_a_lease_is_not_changed_while_a_manager_creates(story: Story, building: Building) -> None:
    building.seconds = 90
    lease = ask(story)
    before_start(story, lease, 50)
    codes = []

    def change() -> None:
        body = {"end": story.moment(180)}
        codes.append(story.problem(409, "PATCH", f"/v2/leases/{lease['id']}", body)["code"])

    building.meanwhile = change
    before_start(story, lease, 45)
    assert codes[:1] == ["lease_busy"]


def test_a_call_that_hangs_in_the_lead_is_repeated(
    story: Story, building: Building, monkeypatch: pytest.MonkeyPatch
) -> None:
    building.seconds = 90
    lease = ask(story)
    before_start(story, lease, 50)
    call = runner._call_plugins

    def hang(runtime: Runtime, task: Task, _now: datetime) -> Result:
        outcomes.discard(runtime, task.claim, Call(task.work, lease["reservations"][0]["id"], 0.0))
        return Result(task)

    for _ in range(6):
        monkeypatch.setattr(runner, "_call_plugins", hang)
        story.at(1 / 12)
    assert show(story, lease)["status"] == "PENDING"
    monkeypatch.setattr(runner, "_call_plugins", call)
    story.until(moment(lease["start"]) + timedelta(seconds=1), step=1)
    assert show(story, lease)["status"] == "ACTIVE"


def test_the_calendar_changes_on_the_day_of_the_lead(story: Story, building: Building) -> None:
    path = "/v2/calendar/changes"
    version = story.ok("GET", path)["version"]
    ask(story, 12 * 60, 13 * 60)
    story.relay.flush()
    (changed,) = story.ok("GET", f"{path}?after={version}")["changes"]
    assert changed["start"] == "2030-01-15T00:00:00Z"


def test_a_failed_host_is_replaced_before_servers_are_created_on_it(
    make_story: MakeStory, hosts_template: Path, tmp_path: Path
) -> None:
    copy_hosts(hosts_template, tmp_path)
    story = make_story(**OPTIONS, **{"physical:host__healing_interval": 1})
    lease = ask(story)
    (reservation,) = lease["reservations"]

    def host() -> int:
        with story.runtime.database.read() as session:
            (found,) = allocations.held(session, [reservation["id"]])[reservation["id"]]
        return found

    before = host()
    story.cloud.fail_host(f"sim-{before}")
    synchronise_inventory(story)
    assert host() == before, "the lease starts much later"
    before_start(story, lease, LEAD + 5)
    synchronise_inventory(story)
    assert host() != before
