"""Decisions about ``on_start``: when users can start and stop a reservation, and what follows."""

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from climate.core.errors import Conflict, LeaseBusy, LeaseNotRunning, NotManual, ReservationStopping
from climate.core.lease import on_start
from climate.core.lease.lifecycle import EventStatus, LeaseStatus, ReservationStatus, RunState
from climate.core.lease.model import RUN_STATE, STACK, Event, Lease, Reservation
from climate.core.lease.on_start import Action
from climate.core.lease.schedule import BEFORE_END, START, UPDATE
from climate.core.window import Window

NOON = dt.datetime(2030, 1, 15, 12, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
STOPPED, STARTING, STARTED, STOPPING = (
    RunState.STOPPED,
    RunState.STARTING,
    RunState.STARTED,
    RunState.STOPPING,
)


def reservation(state: RunState | None = STOPPED, **fields: Any) -> Reservation:
    """Return a reservation in this run state; None: its ``on_start`` is ``create``."""
    values = {
        "id": "r",
        "lease_id": "l",
        "resource_type": "virtual:volume",
        "status": ReservationStatus.ACTIVE,
        "params": {"on_start": "create" if state is None else "manual"},
        "details": {} if state in {None, STOPPED} else {RUN_STATE: state},
        "created_at": NOON,
        "updated_at": None,
    }
    return Reservation(**{**values, **fields})


def event(kind: str, status: EventStatus = EventStatus.DONE) -> Event:
    return Event(
        id=kind, lease_id="l", kind=kind, due_at=NOON, status=status, attempt=1, created_at=NOON
    )


def lease(*reservations: Reservation, events: tuple[Event, ...] = (), **fields: Any) -> Lease:
    values = {
        "id": "l",
        "name": "lease",
        "user_id": "jane",
        "project_id": "lab",
        "window": Window(NOON, NOON + HOUR),
        "status": LeaseStatus.ACTIVE,
        "degraded": False,
        "notices": (),
        "reservations": reservations,
        "events": (event(START), *events),
        "created_at": NOON,
        "updated_at": None,
    }
    return Lease(**{**values, **fields})


def requested(state: RunState, wanted: RunState, **fields: Any) -> RunState:
    item = reservation(state)
    return on_start.requested_state(lease(item, **fields), item, wanted, NOON)


def test_a_request_changes_the_run_state_or_is_already_satisfied() -> None:
    assert {state: requested(state, STARTED) for state in (STOPPED, STARTING, STARTED)} == {
        STOPPED: STARTING,
        STARTING: STARTING,
        STARTED: STARTED,
    }
    assert {state: requested(state, STOPPED) for state in RunState} == {
        STOPPED: STOPPED,
        STARTING: STOPPING,
        STARTED: STOPPING,
        STOPPING: STOPPING,
    }
    with pytest.raises(ReservationStopping):
        requested(STOPPING, STARTED)


def test_rejects_requests_outside_the_running_lease() -> None:
    pending: dict[str, Any] = {"status": LeaseStatus.PENDING}
    later = Window(NOON + HOUR, NOON + 2 * HOUR)
    for fields in (
        {**pending, "window": later},
        {"window": Window(NOON - HOUR, NOON)},
        {"status": LeaseStatus.TERMINATED},
        {"status": LeaseStatus.ERROR},
        {"status": LeaseStatus.DELETING},
    ):
        with pytest.raises(LeaseNotRunning):
            requested(STOPPED, STARTED, **fields)
    snapshots = {"events": (event(BEFORE_END, EventStatus.IN_PROGRESS),)}
    for fields in (pending, {"status": LeaseStatus.STARTING}, snapshots):
        with pytest.raises(LeaseBusy):
            requested(STOPPED, STARTED, **fields)


def test_rejects_reservations_without_a_manual_start() -> None:
    part = reservation(None, params={STACK: "s"})
    for item in (reservation(None), reservation(None, params={}), part):
        with pytest.raises(NotManual):
            on_start.requested_state(lease(item), item, STARTED, NOON)


def test_a_repeated_request_needs_an_event_only_if_the_first_event_has_failed() -> None:
    waiting = lease(events=(event(UPDATE, EventStatus.UNDONE),))
    failed = lease(events=(event(UPDATE, EventStatus.ERROR),))
    assert on_start.needs_event(waiting, STOPPED, STARTING)
    assert not on_start.needs_event(waiting, STARTING, STARTING)
    assert on_start.needs_event(failed, STARTING, STARTING)
    assert not on_start.needs_event(failed, STARTED, STARTED)


def test_a_manager_acts_as_the_run_state_of_the_reservation_or_its_stack_says() -> None:
    expected = {
        None: Action.START,
        STARTING: Action.START,
        STARTED: Action.START,
        STOPPING: Action.STOP,
        STOPPED: Action.NONE,
    }
    for state, action in expected.items():
        item = reservation(state)
        part = reservation(None, id="part", params={STACK: "r", "on_start": "nothing"})
        for each in (item, part):
            assert on_start.action_for(lease(item, part), each) is action, (state, each.id)


def test_a_success_completes_only_the_state_that_the_manager_acted_on() -> None:
    for work, present, after in (
        (STARTING, STARTING, STARTED),
        (STOPPING, STOPPING, STOPPED),
        (STOPPED, STARTING, STARTING),  # requested while the manager acted for another change
        (STARTING, STOPPING, STOPPING),
        (STARTED, STARTED, STARTED),
    ):
        assert on_start.state_after(reservation(work), reservation(present)) is after
    assert on_start.state_after(reservation(), reservation()) is None


def test_a_running_reservation_becomes_manual_only_from_create() -> None:
    create, nothing, manual = ({"on_start": value} for value in ("create", "nothing", "manual"))
    running = lease()
    assert on_start.marks_of_change(running, create, manual) == {RUN_STATE: "started"}
    assert on_start.marks_of_change(running, manual, manual) == {}
    assert on_start.marks_of_change(running, manual, create) == {}
    with pytest.raises(Conflict):
        on_start.marks_of_change(running, nothing, manual)
    untouched = replace(event(START, EventStatus.UNDONE), attempt=0)
    planned = replace(running, status=LeaseStatus.PENDING, events=(untouched,))
    assert on_start.marks_of_change(planned, nothing, manual) == {}


def test_leaving_manual_takes_effect_at_once() -> None:
    values = ("create", "nothing", "manual")
    changes = [(old, new) for old in values for new in values]
    at_once = {
        (old, new)
        for old, new in changes
        if on_start.needs_start({"on_start": old}, {"on_start": new})
    }
    assert at_once == {("nothing", "create"), ("manual", "create"), ("manual", "nothing")}
