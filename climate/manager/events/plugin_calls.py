"""Plug-in calls of an event: which methods are called, in which order, and their results.

The members of a stack (the reservations of its parts) must exist before the stack, and are removed
after it. So the start of a stack waits for the starts of its members. The ends of the members wait
for the end of the stack, but not longer than ``stack_patience``. After that, the members end first,
and the end of the stack is tried once more. If that fails, climate abandons the stack: an operator
must remove it.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from climate.core.lease.model import Lease, Reservation
from climate.core.lease.schedule import BEFORE_END, END, START, UPDATE
from climate.manager.claims import Claim, Work
from climate.manager.process.runtime import Runtime
from climate.plugins.base import NotYet, ResourcePlugin
from climate.plugins.fencing import Fenced

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of the plug-in calls, each by reservation id.

    ``details`` are the details to store, ``failed`` are errors, and ``waiting`` are the reasons why
    a reservation is not done yet although nothing failed.
    """

    details: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)


def call_all(runtime: Runtime, claim: Claim, work: Work) -> Outcome:
    """Call the plug-in for one reservation after the other, and return all results.

    It stops when the claim's fencing token has expired. No transaction is open.
    """
    outcome, patience = Outcome(), runtime.settings.stack_patience
    now = runtime.clock.now()
    for reservation in ordered(work, now, patience):
        undone = {**outcome.failed, **outcome.waiting}
        if reason := blocked_by(work, reservation, undone, now, patience):
            outcome.waiting[reservation.id] = reason
            continue
        try:
            with claim.calling(work, reservation, runtime.clock.elapsed()):
                lease = with_details(work, outcome.details)
                outcome.details[reservation.id] = _call(runtime, work, lease, reservation)
        except NotYet as reason:
            outcome.waiting[reservation.id] = str(reason)
        except Fenced as fenced:
            LOG.warning("%s of lease %s: %s", work.event.kind, work.lease.id, fenced)
            break
        except Exception as error:  # noqa: BLE001 - whatever a plug-in raises is a failed attempt
            outcome.failed[reservation.id] = f"{type(error).__name__}: {error}"
            _log(work, error, is_repeated=claim.attempt > runtime.settings.max_retries + 1)
    return outcome


def _log(work: Work, error: Exception, *, is_repeated: bool) -> None:
    """Log a failure; without a traceback if ``is_repeated``, as some retries have no limit."""
    text = "event %s of lease %s failed: %s"
    LOG.error(text, work.event.kind, work.lease.id, error, exc_info=None if is_repeated else error)


def _call(
    runtime: Runtime, work: Work, lease: Lease, reservation: Reservation
) -> Mapping[str, Any]:
    """Call the plug-in for one reservation and measure it. No transaction is open."""
    plugin = runtime.catalog.plugins[reservation.resource_type]
    with runtime.metrics.call(reservation.resource_type, work.event.kind, NotYet):
        return _call_method(plugin, work, lease, reservation)


def _call_method(
    plugin: ResourcePlugin, work: Work, lease: Lease, reservation: Reservation
) -> Mapping[str, Any]:
    granted = work.resources[reservation.id]
    if work.is_leaving(reservation.id):
        plugin.end(lease, reservation, granted)
        return reservation.details
    if work.event.kind in {START, UPDATE}:
        return plugin.start(lease, reservation, granted)
    if work.event.kind == BEFORE_END:
        plugin.before_end(lease, reservation, granted)
    else:
        plugin.end(lease, reservation, granted)
    return reservation.details


def ordered(work: Work, now: datetime, patience: timedelta) -> list[Reservation]:
    """Return the event's reservations in the order in which plug-ins must be called for them."""
    if len(work.reservations) == 1:
        return work.reservations
    late = _is_end_late(work, now, patience)

    def position(reservation: Reservation) -> int:
        ends, is_stack = _ends(work, reservation), reservation.id in _stacks(work)
        if ends and late:
            return 3 if is_stack else 2
        if ends:
            return 0 if is_stack else 3
        return 2 if is_stack else 1

    return sorted(work.reservations, key=position)


def blocked_by(
    work: Work,
    reservation: Reservation,
    undone: Collection[str],
    now: datetime,
    patience: timedelta,
) -> str | None:
    """Return why the reservation must wait: a text that names others; None if it need not wait.

    ``undone`` are the ids of reservations that failed or wait.
    """
    if not _ends(work, reservation):
        members = [member for member in work.reservations if member.stack_id == reservation.id]
        missing = [m.id for m in members if m.id in undone and not _ends(work, m)]
        return f"{', '.join(missing)} must be there first" if missing else None
    waits = reservation.stack_id in undone and not _is_end_late(work, now, patience)
    return f"{reservation.stack_id} must be over first" if waits else None


def with_details(work: Work, details: Mapping[str, Mapping[str, Any]]) -> Lease:
    """Return the lease with ``details``, which plug-ins returned for its reservations, by id."""
    if not details:
        return work.lease
    return replace(
        work.lease,
        reservations=tuple(
            replace(reservation, details=details.get(reservation.id, reservation.details))
            for reservation in work.lease.reservations
        ),
    )


def abandoned(
    work: Work, undone: Collection[str], now: datetime, patience: timedelta
) -> Collection[str]:
    """Return the ids of the stacks whose end is abandoned.

    These are all ``undone`` reservations, if the end is late and if all of them are stacks.
    """
    if undone and _is_end_late(work, now, patience) and set(undone) <= _stacks(work):
        return set(undone)
    return ()


def _is_end_late(work: Work, now: datetime, patience: timedelta) -> bool:
    """Whether the end of a lease has waited for its stacks long enough."""
    return work.event.kind == END and now - work.lease.tried_since(work.event, now) > patience


def _ends(work: Work, reservation: Reservation) -> bool:
    return work.event.kind == END or work.is_leaving(reservation.id)


def _stacks(work: Work) -> set[str]:
    """Return the reservations that are stacks, by their type or because others are members."""
    stacks = {r.id for r in work.reservations if r.resource_type == "virtual:stack"}
    return stacks | {r.stack_id for r in work.reservations if r.stack_id is not None}
