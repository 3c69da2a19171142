"""Changes of a lease's reservations: other parameters, new reservations, removed reservations.

An ``update_lease`` event hands over what a running lease gains, and takes back what it loses. A
removed reservation of a running lease is marked as leaving; it keeps its resources until a manager
has taken them back, and is DELETED then.

The parts of a stack are reservations of the same lease that come, change and go with the stack's.
What the stack consists of is looked up before the transaction, with the requester's token; the
transaction makes the parts so, if the lease is still as it was at the look-up.
"""

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from marshmallow import ValidationError
from sqlalchemy.orm import Session

from climate.core.errors import Conflict, Forbidden, InvalidInput, LeaseBusy
from climate.core.lease.change import check_resource_type
from climate.core.lease.lifecycle import ReservationStatus
from climate.core.lease.model import LEAVING, PART, Lease, Reservation
from climate.core.matching.requirement import Requirement
from climate.db.leases import leases
from climate.manager.admission.requirements import (
    ReservationRequest,
    any_prepares,
    look_up,
    new_reservation,
    part_of,
)
from climate.manager.process.runtime import Runtime
from climate.plugins.base import Requester, ResourcePlugin

# The same limit as for a new lease.
MOST = 100
# The parameters that say for how much a reservation is.
_AMOUNTS = ("amount", "size")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationChange:
    """New parameters for one reservation of the lease; parameters that are not named stay.

    ``planned`` is the complete request, if the plug-in had to look it up.
    """

    id: str
    resource_type: str | None
    params: Mapping[str, Any]
    planned: "LookedUp | None" = None


@dataclass(frozen=True, slots=True)
class ReservationChanges:
    """All that one request changes of a lease's reservations; ``removed`` are ids."""

    changed: Sequence[ReservationChange]
    added: Sequence[ReservationRequest]
    removed: Collection[str]


@dataclass(frozen=True, slots=True)
class LookedUp:
    """The result of the look-up for a change: the parameters before it, and the request with it."""

    before: Mapping[str, Any]
    request: ReservationRequest


def complete(
    runtime: Runtime, lease: Lease, changes: Sequence[ReservationChange], requester: Requester
) -> tuple[ReservationChange, ...]:
    """Return the changes, completed with what the cloud says where a plug-in looks that up.

    Raises InvalidInput, Conflict, Forbidden, BackendUnavailable; ValidationError.
    """
    present = {one.id: one for one in lease.reservations if one.stays}
    return tuple(
        replace(change, planned=_looked_up(runtime, lease, before, change, requester))
        if (before := present.get(change.id))
        and runtime.plugin(before.resource_type).looks_up_changes
        else change
        for change in changes
    )


def _looked_up(
    runtime: Runtime,
    lease: Lease,
    before: Reservation,
    change: ReservationChange,
    requester: Requester,
) -> LookedUp:
    if requester.project_id != lease.project_id:
        raise Forbidden(
            "What a stack consists of is looked up with the token of its own project: nobody else"
            " can change it"
        )
    plugin = runtime.plugin(before.resource_type)
    params = plugin.schema().load({**before.params, **change.params})
    _check_fixed(change.id, plugin.fixed, before.params, params)
    return LookedUp(before.params, look_up(runtime, before.resource_type, params, requester))


def requested(
    runtime: Runtime, lease: Lease, changes: Sequence[ReservationChange]
) -> Iterator[ReservationRequest]:
    """Yield the reservations as the changes request them, except those with invalid parameters."""
    present = {one.id: one for one in lease.reservations if one.stays}
    for change in changes:
        if before := present.get(change.id):
            with suppress(ValidationError):
                given = {**before.params, **change.params}
                params = runtime.plugin(before.resource_type).schema().load(given)
                yield ReservationRequest(resource_type=before.resource_type, params=params)


def change_reservations(
    runtime: Runtime,
    session: Session,
    lease: Lease,
    changes: ReservationChanges,
    now: datetime,
) -> tuple[tuple[Reservation, ...], bool]:
    """Store the changes of reservations, in the transaction that locks the lease.

    Returns the reservations that the lease has then, and whether any is leaving. Raises
    InvalidInput, Conflict, LeaseBusy.
    """
    changed = _changed(runtime, lease, changes.changed)
    changed, new, superfluous = _adapt_parts(runtime, lease, changed, changes.changed, now)
    new += _added(runtime, lease, changes.added, now)
    _check_removed(lease, changes.removed)
    gone = _with_parts(lease, {*changes.removed, *superfluous})
    leaving = _remove(runtime, session, lease, gone, now)
    reservations = tuple(one for one in (*changed, *new) if one.id not in gone)
    _store(session, lease, reservations, now)
    return reservations, leaving


def _changed(
    runtime: Runtime, lease: Lease, changes: Sequence[ReservationChange]
) -> tuple[Reservation, ...]:
    """Return the reservations with their new parameters, checked as a whole by the plug-in."""
    present = {reservation.id: reservation for reservation in lease.reservations}
    for change in changes:
        if change.id not in present or not present[change.id].stays:
            raise InvalidInput(f"Lease {lease.id} has no reservation {change.id}")
        before = present[change.id]
        check_resource_type(before.resource_type, change.resource_type)
        check_no_part(before)
        plugin = runtime.plugin(before.resource_type)
        after = _new_params(plugin, before, change)
        _check_fixed(change.id, plugin.fixed, before.params, after)
        if lease.has_begun and not plugin.resizes:
            _check_size(change.id, plugin.requirement(before.params), plugin.requirement(after))
        present[change.id] = replace(before, params=after)
    return tuple(present.values())


def _new_params(
    plugin: ResourcePlugin, before: Reservation, change: ReservationChange
) -> Mapping[str, Any]:
    if change.planned is None:
        after: Mapping[str, Any] = plugin.schema().load({**before.params, **change.params})
        return after
    if change.planned.before != before.params:
        raise LeaseBusy(f"Reservation {before.id} was changed by others meanwhile: try again")
    return change.planned.request.params


def check_no_part(reservation: Reservation) -> None:
    """Raise Conflict for a part of a stack."""
    if reservation.stack_id is not None:
        raise Conflict(
            f"Reservation {reservation.id} is for the {reservation.params[PART]} in a stack:"
            f" change or remove reservation {reservation.stack_id}, which is the stack's"
        )


def _check_fixed(
    id_: str, fixed: Collection[str], before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    """Raise Conflict if a change would change parameters that are fixed."""
    if other := sorted(name for name in fixed if before[name] != after[name]):
        raise Conflict(
            f"{', '.join(other)} of reservation {id_} cannot change: add another, and remove"
            " this one"
        )


def _check_size(id_: str, before: Requirement, after: Requirement) -> None:
    """Raise Conflict if units that are in use would have another size or layout."""
    if (before.amounts, before.layout) != (after.amounts, after.layout):
        raise Conflict(
            f"Reservation {id_} is in use: there can be more of the same, but neither its size nor"
            " its affinity can change"
        )


def _adapt_parts(
    runtime: Runtime,
    lease: Lease,
    reservations: Sequence[Reservation],
    changes: Iterable[ReservationChange],
    now: datetime,
) -> tuple[tuple[Reservation, ...], tuple[Reservation, ...], list[str]]:
    """Adapt the parts of changed stacks to what these consist of now.

    Returns the reservations with their new parameters, parts that are new, and the ids of parts
    that are not needed any more.
    """
    params: dict[str, Mapping[str, Any]] = {}
    new: list[Reservation] = []
    superfluous: list[str] = []
    for change in changes:
        if change.planned is None:
            continue
        stack = next(one for one in lease.reservations if one.id == change.id)
        present = {one.params[PART]: one for one in _parts_of(lease, stack.id) if one.stays}
        children = change.planned.request.children
        needed = {child.params[PART]: part_of(stack, child) for child in children}
        for name, child in needed.items():
            if before := present.get(name):
                params[before.id] = _part_params(runtime, lease, before, child.params)
            else:
                new.append(new_reservation(runtime, lease.id, child, _new_id(runtime), now))
        superfluous += [one.id for name, one in present.items() if name not in needed]
    changed = tuple(replace(one, params=params.get(one.id, one.params)) for one in reservations)
    return changed, tuple(new), superfluous


def _part_params(
    runtime: Runtime, lease: Lease, before: Reservation, needed: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return a part's new parameters; its fixed ones stay, and amounts in use do not shrink."""
    plugin = runtime.plugin(before.resource_type)
    fixed = {name: before.params[name] for name in plugin.fixed}
    amounts = {name: before.params[name] for name in _AMOUNTS if name in before.params}
    used = amounts if lease.has_begun else {}
    kept = {name: max(amount, needed[name]) for name, amount in used.items()}
    return {**needed, **fixed, **kept}


def _added(
    runtime: Runtime, lease: Lease, requests: Sequence[ReservationRequest], now: datetime
) -> tuple[Reservation, ...]:
    """Return the new reservations.

    Raises InvalidInput for too many, Conflict for a type that must be prepared before the lease.
    """
    if wrong := sorted({r.resource_type for r in requests if any_prepares(runtime, [r])}):
        raise Conflict(
            f"{', '.join(wrong)} cannot be added to a lease that is there: ask for another lease"
        )
    if len(lease.reservations) + len(requests) > MOST:
        raise InvalidInput(f"A lease has at most {MOST} reservations, those that are over included")
    return tuple(
        new_reservation(runtime, lease.id, request, _new_id(runtime), now) for request in requests
    )


def _new_id(runtime: Runtime) -> str:
    """Return a new id; a rehearsal of the same change chooses the same one."""
    return str(uuid.UUID(int=runtime.rng.getrandbits(128), version=4))


def _check_removed(lease: Lease, ids: Collection[str]) -> None:
    """Raise InvalidInput for a reservation that the lease does not have (any more).

    Raises Conflict for a part of a stack that stays.
    """
    live = {r.id: r for r in lease.reservations if r.status is not ReservationStatus.DELETED}
    for id_ in ids:
        if id_ in live and live[id_].stack_id not in ids:
            check_no_part(live[id_])
        if id_ not in live:
            raise InvalidInput(f"Lease {lease.id} has no reservation {id_}")


def _with_parts(lease: Lease, ids: Collection[str]) -> tuple[str, ...]:
    """Return the ids, and those of all that are parts of these."""
    parts = [one.id for id_ in ids for one in _parts_of(lease, id_)]
    return tuple(dict.fromkeys((*ids, *parts)))


def _parts_of(lease: Lease, stack_id: str) -> list[Reservation]:
    """Return the reservations that are parts of a stack's."""
    return [one for one in lease.reservations if one.stack_id == stack_id]


def _remove(
    runtime: Runtime, session: Session, lease: Lease, ids: Collection[str], now: datetime
) -> bool:
    """Remove reservations; return whether managers must take something back for that.

    Raises Conflict for one that has something in the cloud before its start.
    """
    removed = [one for one in lease.reservations if one.id in ids]
    if not lease.has_begun:
        if any_prepares(runtime, removed):
            raise Conflict(
                f"Something was made in the cloud for {', '.join(one.id for one in removed)}"
                " already: it can be removed once the lease runs, or with the lease"
            )
        leases.delete_reservations(session, ids)
        return False
    for reservation in removed:
        details = {**reservation.details, LEAVING: True}
        leases.set_reservation(session, reservation.id, now, details=details)
    return bool(ids)


def _store(
    session: Session, before: Lease, reservations: Sequence[Reservation], now: datetime
) -> None:
    """Store new reservations, and the parameters of those that have changed."""
    present = {reservation.id: reservation for reservation in before.reservations}
    for one in reservations:
        if one.id in present and one.params != present[one.id].params:
            leases.set_reservation(session, one.id, now, params=dict(one.params))
    new = [one for one in reservations if one.id not in present]
    leases.insert_reservations(session, new, len(before.reservations))
