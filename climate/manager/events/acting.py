"""In which order the reservations of a lease are acted on, and which wait for which.

The parts of a stack are there before it is, and go after it went: its start waits for theirs, and
their end for its. But its end is not waited for without end: what is left of it after that loses
its room, is tried once more, and then is somebody else's to look after. Pure.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from climate.core.lease import Lease, Reservation
from climate.core.schedule import END
from climate.manager.claims import Work


def ordered(work: Work, now: datetime, patience: timedelta) -> list[Reservation]:
    """Return the reservations in the order in which to act on them."""
    if len(work.reservations) == 1:
        return work.reservations
    late = is_late(work, now, patience)

    def turn(reservation: Reservation) -> int:
        ends, is_stack = _ends(work, reservation), reservation.id in _stacks(work)
        if ends and late:
            return 3 if is_stack else 2
        if ends:
            return 0 if is_stack else 3
        return 2 if is_stack else 1

    return sorted(work.reservations, key=turn)


def held_up(
    work: Work,
    reservation: Reservation,
    undone: Collection[str],
    now: datetime,
    patience: timedelta,
) -> str | None:
    """Return what a reservation waits for, if any of those that are ``undone`` keeps it."""
    if not _ends(work, reservation):
        parts = [one for one in work.reservations if one.stack_id == reservation.id]
        missing = [one.id for one in parts if one.id in undone and not _ends(work, one)]
        return f"{', '.join(missing)} must be there first" if missing else None
    waits = reservation.stack_id in undone and not is_late(work, now, patience)
    return f"{reservation.stack_id} must be over first" if waits else None


def seen_by(work: Work, told: Mapping[str, Mapping[str, Any]]) -> Lease:
    """Return the lease with what was just told about its reservations."""
    if not told:
        return work.lease
    return replace(
        work.lease,
        reservations=tuple(
            replace(one, details=told.get(one.id, one.details)) for one in work.lease.reservations
        ),
    )


def given_up(
    work: Work, undone: Collection[str], now: datetime, patience: timedelta
) -> Collection[str]:
    """Return the stacks whose end is given up: those, if nothing but stacks is left to be ended."""
    if undone and is_late(work, now, patience) and set(undone) <= _stacks(work):
        return set(undone)
    return ()


def is_late(work: Work, now: datetime, patience: timedelta) -> bool:
    """Tell whether a lease's end is not to wait for stacks any more."""
    return work.event.kind == END and now - work.lease.tried_since(work.event, now) > patience


def _ends(work: Work, reservation: Reservation) -> bool:
    return work.event.kind == END or work.is_leaving(reservation.id)


def _stacks(work: Work) -> set[str]:
    """Return the reservations of which others are parts, or that have a stack without any."""
    return {one.id for one in work.reservations if one.resource_type == "virtual:stack"} | {
        one.stack_id for one in work.reservations if one.stack_id is not None
    }
