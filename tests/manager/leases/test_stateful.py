"""Random sequences of requests for leases and offers, while time passes and the cloud fails."""

import itertools
import random
import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from climate.manager.audit.invariants import violations
from climate.manager.events.dispatcher import Dispatcher
from climate.plugins.hosts.simulated import SimulatedCloud
from climate.plugins.simulated_journal import SimulatedFailure
from tests.conftest import NOON, MakeStory
from tests.support import invariants, rows
from tests.support.rows import Rows
from tests.support.service import FORMAT, Story, host_reservation, hosts

CLEANING = timedelta(minutes=5)
NIGHTLY = pytest.mark.nightly(reason="searches at random for minutes")
HOSTS = 3


class Died(BaseException):
    """The manager was killed: nothing of it runs any more, not even its handling of errors."""


class MoodyCloud(SimulatedCloud):
    """A cloud whose next effects follow ``moods``; without a mood they succeed."""

    moods: list[str]

    def act(self, name: str, **details: str) -> None:
        mood = self.moods.pop(0) if self.moods else "works"
        if mood == "fails":
            raise SimulatedFailure(f"{name} is broken")
        if mood == "dies before":
            raise Died
        super().act(name, **details)
        if mood == "dies after":
            raise Died


starts = st.sampled_from([0, 0, 1, 5, 20, 60, -1])
lengths = st.sampled_from([1, 10, 30, 90, 240])
counts = st.tuples(st.sampled_from([1, 1, 2]), st.integers(0, HOSTS - 1))
# By how many minutes a date moves; None leaves it alone.
shifts = st.sampled_from([None, None, -30, -1, 1, 10, 10, 30, 60])
rarely = st.sampled_from([None] * 8 + [-10, -1, 1, 10])
holds = st.sampled_from([1, 60, 300])
pauses = st.sampled_from([0, 1, 59, 60, 300, 1200])
managers = st.sampled_from(["works", "works", "works", "away", "dies"])
moods: st.SearchStrategy[list[str]] = st.one_of(
    st.just([]),
    st.lists(st.sampled_from(["works", "fails", "dies before", "dies after"]), max_size=4),
    st.just(["fails"] * 30),
)


class Leases(RuleBasedStateMachine):
    """A service, its users, its cloud and a clock."""

    story: Story
    empty: Rows
    dice: random.Random

    def __init__(self) -> None:
        super().__init__()
        rows.put_back(self.story.runtime.database, self.empty)
        self.dice.seed(1)
        self.story.runtime.rng.seed(1)
        self.story.clock.set(NOON + timedelta(seconds=7))
        self.cloud = MoodyCloud(self.story.conf)
        self.cloud.moods = []
        plugin: Any = self.story.runtime.plugins["physical:host"]
        plugin.cloud = self.cloud
        self.last = self.empty
        self.offers: list[str] = []
        self.accepted: set[str] = set()
        self.names = itertools.count()
        self.replace_manager()

    def replace_manager(self) -> None:
        """Start a manager that continues after a killed one."""
        self.manager = Dispatcher(self.story.runtime, f"manager-{next(self.names)}")

    def rows(self) -> Rows:
        return rows.dump(self.story.runtime.database)

    def some_lease(self, number: int) -> str:
        """Choose a lease, most often one that is not over."""
        made = sorted(self.leases(), key=lambda lease: (lease["created_at"], lease["name"]))
        live = [lease for lease in made if lease["status"] != "TERMINATED"]
        chosen = live if live and number % 5 else made
        return str(chosen[number % len(chosen)]["id"])

    def leases(self) -> list[dict[str, Any]]:
        """Return the rows of leases, without offers."""
        return [lease for lease in self.last["leases"] if lease["status"] != "CREATING"]

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request; it succeeds, or is rejected with a reason and changes nothing.

        Returns the JSON of an answer that is not a rejection, else None.
        """
        response = self.story.call(method, path, body)
        assert response.status_code < 500, response.get_data(as_text=True)
        if response.status_code >= 400:
            problem = response.get_json()
            assert problem.get("error_message") or problem["detail"]
            assert self.rows() == self.last
            return None
        return response.get_json(silent=True) or {}

    def run_due(self) -> None:
        """Let the manager run due events; if it dies, another one replaces it."""
        try:
            self.manager.run_due()
        except Died:
            self.replace_manager()

    @initialize(length=lengths, ask=counts)
    def begin(self, length: int, ask: tuple[int, int]) -> None:
        """Begin with an active lease, where most can go wrong."""
        self.create(0, length, [ask], None, None, "")
        self.run_due()

    @rule(
        start=starts,
        length=lengths,
        asked=st.lists(counts, max_size=2),
        before_end=rarely,
        event=rarely,
        kind=st.sampled_from(["backup", "before_start_lease", "before_end_lease"]),
    )
    def create(
        self,
        start: int,
        length: int,
        asked: list[tuple[int, int]],
        before_end: int | None,
        event: int | None,
        kind: str,
    ) -> None:
        date, end = self.story.date, start + length
        body = self.story.lease_body(
            start,
            end,
            name=f"lease {next(self.names)}",
            before_end_date=None if before_end is None else date(end - abs(before_end)),
            reservations=[host_reservation(low, low + more) for low, more in asked],
            events=[] if event is None else [{"event_type": kind, "time": date(start + event)}],
        )
        self.request("POST", "/v1/leases", body)

    @rule(start=starts, length=lengths, asked=counts, hold=holds)
    def offer(self, start: int, length: int, asked: tuple[int, int], hold: int) -> None:
        body = self.story.asking(start, start + length, name=f"lease {next(self.names)}")
        body["reservations"] = [hosts(asked[0], sum(asked))]
        made = self.request("POST", "/v2/offers", {**body, "hold": hold})
        if made:
            self.offers.append(made["id"])

    @precondition(lambda self: self.offers)
    @rule(number=st.integers(0, 20))
    def accept(self, number: int) -> None:
        """Accept one of the latest offers, which may be over."""
        id_ = self.offers[-1 - number % min(4, len(self.offers))]
        if self.request("POST", f"/v2/offers/{id_}/accept"):
            self.accepted.add(id_)

    @precondition(lambda self: self.offers)
    @rule(number=st.integers(0, 20))
    def delete_offer(self, number: int) -> None:
        self.request("DELETE", f"/v2/offers/{self.offers[-1 - number % min(4, len(self.offers))]}")

    @precondition(lambda self: self.leases())
    @rule(
        number=st.integers(0, 20),
        start=rarely,
        end=shifts | st.just("now"),
        before_end=rarely,
        asked=st.none() | counts,
        which=st.integers(0, 1),
    )
    def update(
        self,
        number: int,
        start: int | None,
        end: int | str | None,
        before_end: int | None,
        asked: tuple[int, int] | None,
        which: int,
    ) -> None:
        lease = self.story.lease(self.some_lease(number))
        body: dict[str, Any] = {"name": f"lease {next(self.names)}"}
        for key, moved, edge in (
            ("start_date", start, lease["start_date"]),
            ("end_date", end, lease["end_date"]),
            ("before_end_date", before_end and -abs(before_end), lease["end_date"]),
        ):
            if moved == "now":
                body[key] = moved
            elif isinstance(moved, int):
                date = datetime.fromisoformat(edge) + timedelta(minutes=moved)
                body[key] = f"{date:{FORMAT}}"
        if asked is not None and lease["reservations"]:
            chosen = lease["reservations"][which % len(lease["reservations"])]["id"]
            body["reservations"] = [{"id": chosen, "min": asked[0], "max": sum(asked)}]
        self.request("PUT", f"/v1/leases/{lease['id']}", body)

    @precondition(lambda self: len(self.leases()) > 1)
    @rule(number=st.integers(0, 20))
    def delete(self, number: int) -> None:
        id_ = self.some_lease(number)
        if self.request("DELETE", f"/v1/leases/{id_}") is not None:
            self.accepted.discard(id_)

    @rule(steps=st.lists(st.tuples(pauses, managers), min_size=1, max_size=4), mood=moods)
    def time_passes(self, steps: list[tuple[int, str]], mood: list[str]) -> None:
        """Managers work in a cloud that may fail, or kill them."""
        self.cloud.moods = list(mood) or self.cloud.moods
        for seconds, manager in steps:
            self.story.clock.advance(seconds)
            if manager == "works":
                self.manager.upkeep.renew()
                self.manager.upkeep.tidy()
                self.run_due()
            elif manager == "dies":
                Dispatcher(self.story.runtime, f"manager-{next(self.names)}")._claim()

    @invariant()
    def all_is_well(self) -> None:
        self.last = self.rows()
        pools = self.cloud._state.pools
        invariants.check(self.last, pools, self.story.clock.now(), CLEANING)
        # The third one says whether managers work, which they do not at all times here.
        assert {number for number, _ in violations(self.story.runtime.store)} <= {3}
        assert self.accepted <= {lease["id"] for lease in self.leases()}

    def teardown(self) -> None:
        """Repair the cloud: then every lease ends, and returns all its hosts."""
        self.cloud.moods = []
        ends = [lease["end_at"] for lease in self.last["leases"]]
        until = max([self.story.clock.now(), *ends]) + timedelta(hours=2)
        while self.story.clock.now() < until:
            self.story.clock.advance(1800)
            self.manager.upkeep.renew()
            self.manager.upkeep.tidy()
            self.run_due()
            self.all_is_well()
        assert {lease["status"] for lease in self.last["leases"]} <= {"TERMINATED"}
        assert self.cloud._state.pools == {}


@pytest.mark.parametrize(("examples", "steps"), [(2, 14), pytest.param(60, 20, marks=NIGHTLY)])
def test_no_sequence_of_actions_breaks_an_invariant(
    make_story: MakeStory, monkeypatch: pytest.MonkeyPatch, examples: int, steps: int
) -> None:
    story = make_story(DEFAULT__cleaning_time=5, simulated__journal=None)
    story.register(HOSTS)
    dice = random.Random()  # noqa: S311 - what fails must fail again
    fields = {"story": story, "dice": dice, "empty": rows.dump(story.runtime.database)}
    machine = type("Leases", (Leases,), fields)
    # Ids decide between what is due at the same time, and must be the same each time, too.
    monkeypatch.setattr(
        "climate.db.engine.ids.new_id", lambda: str(uuid.UUID(int=dice.getrandbits(128), version=4))
    )
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_lease_ends_although_the_manager_that_claimed_its_start_died(story: Story) -> None:
    """Found by the state machine: the end came before any manager began the start."""
    lease = story.reserve(0, 10)
    Dispatcher(story.runtime, "doomed")._claim()
    story.dispatcher.upkeep.renew()
    story.clock.advance(3600)
    story.dispatcher.upkeep.renew()
    story.run()
    assert story.lease(lease["id"])["status"] == "TERMINATED"


def test_ending_an_overdue_lease_now_does_not_delay_the_next(make_story: MakeStory) -> None:
    """Found by the state machine: cleaning overlapped the next lease."""
    story = make_story(DEFAULT__cleaning_time=5)
    story.register(1)
    lease, after = story.reserve(0, 30), story.reserve(35, 60)
    story.run()
    story.clock.advance(1805)
    story.ok("PUT", f"/v1/leases/{lease['id']}", {"end_date": "now"})
    assert story.lease(lease["id"])["end_date"] == lease["end_date"]
    story.at(5)
    assert story.lease(after["id"])["status"] == "ACTIVE"
