"""Leases of hosts, shares of the same hosts and pools, compared with a brute-force model."""

import itertools
import math
import random
import sys
import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import itemgetter
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
from sqlalchemy.orm import Session

from climate.core.errors import ClimateError, InvalidInput, NotEnoughResources, ResourcesInUse
from climate.core.lease.change import Change, changed_window, check_changeable, has_started
from climate.core.lease.model import Inventory, Lease
from climate.core.matching.requirement import Layout
from climate.core.window import Window
from climate.db.resources import capacity, resources
from climate.manager.admission.requirements import ReservationRequest
from climate.manager.events.dispatcher import Dispatcher
from climate.manager.leases import healing
from climate.manager.leases.create import LeaseRequest, Owner, create_lease
from climate.manager.leases.delete import delete_lease
from climate.manager.leases.read import get_lease
from climate.manager.leases.reservation_changes import LeaseChange, ReservationChange
from climate.manager.leases.update import update_lease
from climate.manager.process.runtime import Runtime
from tests.conftest import NOON
from tests.race.databases import SEARCH
from tests.race.engine import kinds, model
from tests.race.engine.bookings import Bookings, violations
from tests.race.engine.model import ModelDemand, State
from tests.support import rows
from tests.support.clock import ManualClock
from tests.support.rows import Rows

CLEANING = timedelta(minutes=5)
MINUTE = timedelta(minutes=1)
OWNER = Owner(user_id="user", project_id="project")
THINGS = [
    kinds.host("a", vcpus=4, ratio=2.0),
    kinds.host("a", vcpus=8, gpus=1),
    kinds.host("b", vcpus=16, gpus=2),
    kinds.Thing(kinds.HOST, "b"),
    kinds.pool(5_000),
]

counts = st.tuples(st.sampled_from([1, 1, 2, 3]), st.integers(0, 2))
queries = st.sampled_from(["", "", '["==", "$rack", "a"]', '["==", "$rack", "b"]'])
sizes = st.sampled_from(
    [
        {"vcpus": 1},
        {"vcpus": 4, "memory_mb": 2048},
        {"vcpus": 8, "disk_gb": 20},
        {"gpus": 1},
        {"vcpus": 3, "memory_mb": 512, "gpus": 1},
        {"memory_mb": 4000},
        {"vcpus": 16},
    ]
)


@st.composite
def hosts(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    low, more = draw(counts)
    return kinds.HOST, {"min": low, "max": low + more, "query": draw(queries)}


@st.composite
def instances(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    low, more = draw(counts)
    size = dict.fromkeys(kinds.SIZES.values(), 0) | draw(sizes)
    layout = draw(st.sampled_from(Layout)).value
    return kinds.INSTANCE, {
        "min": low, "max": low + more, "query": draw(queries), "layout": layout, **size,
    }  # fmt: skip


@st.composite
def addresses(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    low = draw(st.sampled_from([1, 700, 2_000, 2_500, 5_000]))
    more, size = draw(st.sampled_from([0, 1, 1_500])), draw(st.sampled_from([1, 1, 2]))
    return kinds.ADDRESS, {"min": low, "max": low + more, "size": size}


def changes_of(resource_type: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return the possible changes of a reservation: none, the number of units, or any."""
    kind = {kinds.HOST: hosts(), kinds.INSTANCE: instances(), kinds.ADDRESS: addresses()}
    changed_params = kind[resource_type].map(itemgetter(1))
    other = changed_params.map(lambda given: {key: given[key] for key in ("min", "max")})
    return st.one_of(st.just({}), other, other, changed_params)


asked = st.one_of(hosts(), instances(), instances(), addresses())
starts = st.sampled_from([0, 5, 20, 40, 60])
lengths = st.sampled_from([10, 30, 35, 90])
# By how many minutes a date moves; None leaves it alone.
shifts = st.sampled_from([None, None, -30, -10, 5, 10, 30, 60])


class Engine(RuleBasedStateMachine):
    """Users, a manager, failing resources and a clock."""

    runtime: Runtime
    clock: ManualClock
    empty: Rows
    ids: list[int]
    dice: random.Random
    seen: Counter[str]

    def __init__(self) -> None:
        super().__init__()
        rows.put_back(self.runtime.database, self.empty)
        self.dice.seed(1)
        self.runtime.rng.seed(1)
        self.clock.set(NOON + timedelta(seconds=7))
        self.manager = Dispatcher(self.runtime, "manager")
        self.names = itertools.count()
        self.failing: set[int] = set()
        self.look()

    def look(self) -> None:
        self.last = rows.dump(self.runtime.database)
        self.books = Bookings(self.last)

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def some_lease(self, number: int) -> Lease:
        """Choose a lease, most often one that is not over."""
        made = sorted(self.last["leases"], key=lambda lease: lease["name"])
        live = [lease for lease in made if lease["status"] != "TERMINATED"]
        chosen = live if live and number % 5 else made
        return get_lease(self.runtime, str(chosen[number % len(chosen)]["id"]))

    def state(self, window: Window, without: Sequence[str] = ()) -> State:
        """Return what is free from the window's start, or now, until the end of cleaning."""
        start = max(window.start, self.now)
        return State.remaining(self.books, start, window.end + CLEANING, without)

    def judge(self, error: ClimateError | None, asks: Sequence[ModelDemand], state: State) -> None:
        """Compare the outcome of a request with the model."""
        if error is None:
            self.seen["admitted"] += 1
            return  # that it conflicts with nothing is seen from the rows
        assert isinstance(error, NotEnoughResources), error
        self.unchanged()
        assert not model.must_fit(asks, state), (error.message, asks, state.left)
        self.seen["refused"] += 1
        self.seen["refused, though there was a way"] += model.fits(asks, state)

    def unchanged(self) -> None:
        assert rows.dump(self.runtime.database) == self.last

    def units(self, reservation_id: str) -> dict[int, int]:
        books = Bookings(rows.dump(self.runtime.database))
        row = books.reservations[reservation_id]
        needs = kinds.requirement(row["resource_type"], row["params"])
        return books.units(reservation_id, needs)

    @initialize(ask=asked)
    def begin(self, ask: tuple[str, dict[str, Any]]) -> None:
        """Begin with a running lease, where most can go wrong."""
        self.create(0, 90, [ask])
        self.manager.run_due()
        self.look()

    @rule(start=starts, length=lengths, wanted=st.lists(asked, min_size=1, max_size=3))
    def create(self, start: int, length: int, wanted: list[tuple[str, dict[str, Any]]]) -> None:
        begin = self.now + start * MINUTE
        request = LeaseRequest(
            name=f"lease {next(self.names):03}",
            start=begin,
            end=begin + length * MINUTE,
            reservations=tuple(
                ReservationRequest(resource_type=type_, params=given) for type_, given in wanted
            ),
        )
        asks = [ModelDemand(kinds.requirement(type_, given)) for type_, given in wanted]
        state = self.state(Window(request.start, request.end))
        lease, error = None, None
        try:
            lease = create_lease(self.runtime, OWNER, request)
        except ClimateError as refusal:
            error = refusal
        self.judge(error, asks, state)
        if lease and len(asks) == 1:
            has = self.units(lease.reservations[0].id)
            assert sum(has.values()) == model.most(asks[0], state)

    @precondition(lambda self: self.last["leases"])
    @rule(
        number=st.integers(0, 20),
        start=st.sampled_from([None] * 4 + [-10, 5, 30]),
        end=shifts | st.just("now"),
        data=st.data(),
    )
    def update(
        self,
        number: int,
        start: int | None,
        end: int | str | None,
        data: st.DataObject,
    ) -> None:
        """Move, prolong, shorten, end, and change reservations."""
        lease = self.some_lease(number)
        if number % 7 and has_started(lease, self.now):
            start = None  # it would be refused
        dates = Change(
            start=None if start is None else lease.window.start + start * MINUTE,
            end=self.now
            if end == "now"
            else (None if end is None else lease.window.end + int(end) * MINUTE),
        )
        news = {
            item.id: data.draw(changes_of(item.resource_type), item.resource_type)
            for item in lease.reservations
        }
        params = {
            item.id: {**item.params, **news[item.id]}
            for item in lease.reservations
            if news[item.id]
        }
        changes = tuple(
            ReservationChange(id=id_, resource_type=None, params=given)
            for id_, given in params.items()
        )
        change = LeaseChange(name=f"lease {next(self.names):03}", dates=dates, reservations=changes)
        error = None
        expected = self.improper(lease, change)
        try:
            update_lease(self.runtime, lease.id, change)
        except ClimateError as refusal:
            error = refusal
        if expected is not None:
            assert type(error) is type(expected), (error, expected)
            self.unchanged()
        elif not change.keeps_bookings:
            self.judge_update(error, lease, changed_window(lease, dates, self.now), params)

    def improper(self, lease: Lease, change: LeaseChange) -> ClimateError | None:
        """Return why an update is rejected before the search for resources."""
        try:
            check_changeable(
                lease, only_name=change.keeps_bookings, wants_more=bool(change.reservations)
            )
            if change.keeps_bookings:
                return None
            window = changed_window(lease, change.dates, self.now)
        except ClimateError as reason:
            return reason
        ends_now = window.end <= self.now and change.reservations
        return InvalidInput("the lease ends now") if ends_now else None

    def judge_update(
        self,
        error: ClimateError | None,
        lease: Lease,
        window: Window,
        params: dict[str, dict[str, Any]],
    ) -> None:
        if window.end <= self.now:
            assert error is None, error
            self.seen["ended"] += 1
            return
        before = {r.id: kinds.requirement(r.resource_type, r.params) for r in lease.reservations}
        after = {
            r.id: kinds.requirement(r.resource_type, params.get(r.id, r.params))
            for r in lease.reservations
        }
        state: State | None = self.state(window, list(before))
        asks = [ModelDemand(needs) for needs in after.values()]
        started = has_started(lease, self.now)
        if started:
            asks = [
                ModelDemand(needs, self.books.units(id_, before[id_]))
                for id_, needs in after.items()
            ]
            state = self.keeping(asks, state)
        if state is None:
            assert isinstance(error, NotEnoughResources | ResourcesInUse)
            self.unchanged()
            self.seen["would lose what is in use"] += 1
            return
        self.judge(error, asks, state)
        self.seen["changed while it runs" if started else "changed"] += error is None
        if error is not None:
            return
        units = {id_: self.units(id_) for id_ in after}
        for ask, has in zip(asks, units.values(), strict=True):
            assert all(has[resource] >= count for resource, count in ask.has.items()), (ask, has)
        if len(asks) == 1 and self.is_filled(lease, window, params, asks[0]):
            has = units[lease.reservations[0].id]
            wanted = sum(asks[0].has.values()) + model.most(asks[0], state)
            assert sum(has.values()) == wanted

    @staticmethod
    def keeping(asks: Sequence[ModelDemand], state: State | None) -> State | None:
        """Return what is free if all reservations keep their resources; None if they cannot."""
        for ask in asks:
            if state is None or not model.can_keep(ask, state):
                return None
            state = state.with_units(ask.needs, ask.has)
        return state

    def is_filled(
        self, lease: Lease, window: Window, params: dict[str, dict[str, Any]], ask: ModelDemand
    ) -> bool:
        """Return whether an update gives as much as is available."""
        moving = not has_started(lease, self.now) and not lease.window.contains(window)
        changed = any(r.params != params.get(r.id, r.params) for r in lease.reservations)
        # Units together stay where they are as long as there are enough.
        settled = ask.needs.layout is Layout.TOGETHER and not has_started(lease, self.now)
        return (moving or changed) and not settled

    @precondition(lambda self: len(self.last["leases"]) > 1)
    @rule(number=st.integers(0, 20))
    def delete(self, number: int) -> None:
        delete_lease(self.runtime, self.some_lease(number).id)

    @rule(minutes=st.sampled_from([0, 1, 5, 20, 60]), works=st.sampled_from([True, True, False]))
    def time_passes(self, minutes: int, works: bool) -> None:
        self.clock.advance(minutes * 60)
        if works:
            self.manager.run_due()
            self.manager.upkeep.renew()
            self.manager.upkeep.tidy()

    @rule(failing=st.sets(st.integers(0, len(THINGS) - 1), max_size=2))
    def resources_fail(self, failing: set[int]) -> None:
        """Some fail, earlier ones recover, and leases get replacements."""
        self.failing = {self.ids[number] for number in failing}

        def work(session: Session) -> None:
            resources.set_reservable(session, self.ids, self.now, reservable=True)
            resources.set_reservable(session, self.failing, self.now, reservable=False)

        self.runtime.database.write(work)
        healing.heal_all(self.runtime, self.failing)
        self.look()
        for lease in self.last["leases"]:
            if lease["status"] in {"PENDING", "ACTIVE"} and lease["end_at"] > self.now:
                for reservation in self.books.reservations_of(lease["id"]):
                    self.is_healed(lease, reservation)

    def is_healed(self, lease: dict[str, Any], reservation: Any) -> None:
        """A lease keeps a failed resource only if no replacement exists."""
        needs = kinds.requirement(reservation["resource_type"], reservation["params"])
        units = self.books.units(reservation["id"], needs)
        short = {id_: count for id_, count in units.items() if id_ in self.failing}
        assert reservation["missing_resources"] == bool(short)
        working = {id_: count for id_, count in units.items() if id_ not in self.failing}
        self.seen["still failing"] += bool(short)
        for count in short.values():
            state = self.state(Window(lease["start_at"], lease["end_at"]))
            assert model.elsewhere(needs, working, count, state) < count

    @rule(number=st.integers(0, len(THINGS) - 1), more=st.sampled_from([0.0, 0.5, 1.0, 4.0]))
    def inventory_changes(self, number: int, more: float) -> None:
        """A resource gets more or less capacity, but never less than is booked."""
        id_, thing = self.ids[number], THINGS[number]
        has = {
            name: Inventory(
                max(
                    math.floor(found.total * more),
                    found.reserved + self.books.peak(id_, name, self.books.bookings),
                ),
                found.reserved,
                max(1.0, found.allocation_ratio),
            )
            for name, found in thing.has.items()
        }
        self.runtime.database.write(lambda session: capacity.store(session, id_, has))

    @invariant()
    def nothing_is_booked_twice_or_missing(self) -> None:
        self.look()
        assert violations(self.last, self.now, CLEANING) == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("examples", [4, pytest.param(60, marks=SEARCH)])
def test_admission_decides_as_the_model_does(
    database_url: str, backend: str, monkeypatch: pytest.MonkeyPatch, examples: int
) -> None:
    clock, dice = ManualClock(NOON), random.Random()  # noqa: S311 - what fails must fail again
    runtime = kinds.make_runtime(database_url, clock, cleaning=CLEANING)
    ids = kinds.register(runtime.database, THINGS)
    fields: dict[str, Any] = {
        "runtime": runtime,
        "clock": clock,
        "dice": dice,
        "ids": ids,
        "seen": Counter(),
    }
    machine = type("Engine", (Engine,), {**fields, "empty": rows.dump(runtime.database)})
    # Ids decide between what is due at the same time, and must be the same each time, too.
    monkeypatch.setattr(
        "climate.db.engine.ids.new_id", lambda: str(uuid.UUID(int=dice.getrandbits(128), version=4))
    )
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples if backend == "sqlite" else max(2, examples // 4),
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        sys.stdout.write(f"{dict(fields['seen'])}\n")
        runtime.close()
