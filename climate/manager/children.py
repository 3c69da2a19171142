"""Parts of a stack: reservations of the same lease that come, change and go with the stack's.

What the stack consists of is looked up anew before the transaction, with the token of whoever asks;
in it the parts become what was found. The lease must then be as it was when that was looked up.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from climate.core.errors import Forbidden
from climate.core.lease.model import PART, Lease, Reservation
from climate.manager.composition import Planned, ReservationChange, check_fixed, new_id
from climate.manager.leases import has_begun
from climate.manager.requests import ReservationRequest, looked_up, new_reservation, part_of
from climate.manager.runtime import Runtime
from climate.plugins.base import Requester

# How much of something a reservation is for.
_AMOUNTS = ("amount", "size")


@dataclass(slots=True)
class Parts:
    """What becomes of the parts of changed stacks.

    New parameters by id, parts that are new, and the ids of those that are needed no more.
    """

    params: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    new: list[Reservation] = field(default_factory=list)
    superfluous: list[str] = field(default_factory=list)

    def onto(self, reservations: Iterable[Reservation]) -> list[Reservation]:
        """Return the reservations, the parts with their new parameters."""
        return [replace(one, params=self.params.get(one.id, one.params)) for one in reservations]


def replanned(
    runtime: Runtime, lease: Lease, changes: Sequence[ReservationChange], requester: Requester
) -> tuple[ReservationChange, ...]:
    """Return the changes with what the cloud says of those that must be looked up.

    Raises InvalidInput, Conflict, Forbidden, BackendUnavailable; ValidationError.
    """
    present = {one.id: one for one in lease.reservations if one.stays}
    return tuple(
        replace(change, planned=_planned(runtime, lease, before, change, requester))
        if (before := present.get(change.id))
        and runtime.plugin(before.resource_type).looks_up_changes
        else change
        for change in changes
    )


def _planned(
    runtime: Runtime,
    lease: Lease,
    before: Reservation,
    change: ReservationChange,
    requester: Requester,
) -> Planned:
    if requester.project_id != lease.project_id:
        raise Forbidden(
            "What a stack consists of is looked up with the token of its own project: nobody else"
            " can change it"
        )
    plugin = runtime.plugin(before.resource_type)
    params = plugin.schema().load({**before.params, **change.params})
    check_fixed(change.id, plugin.fixed, before.params, params)
    return Planned(before.params, looked_up(runtime, before.resource_type, params, requester))


def reconciled(
    runtime: Runtime, lease: Lease, changes: Iterable[ReservationChange], now: datetime
) -> Parts:
    """Return what becomes of the parts of the stacks that change."""
    found = Parts()
    for change in changes:
        if change.planned is not None:
            stack = next(one for one in lease.reservations if one.id == change.id)
            _reconcile(runtime, lease, stack, change.planned.request, now, found)
    return found


def _reconcile(
    runtime: Runtime,
    lease: Lease,
    stack: Reservation,
    asked: ReservationRequest,
    now: datetime,
    found: Parts,
) -> None:
    present = {one.params[PART]: one for one in parts_of(lease, stack.id) if one.stays}
    wanted = {one.params[PART]: part_of(stack, one) for one in asked.children}
    for name, child in wanted.items():
        if name in present:
            before = present[name]
            found.params[before.id] = _params(runtime, lease, before, child.params)
        else:
            found.new.append(new_reservation(runtime, lease.id, child, new_id(runtime), now))
    found.superfluous += [one.id for name, one in present.items() if name not in wanted]


def _params(
    runtime: Runtime, lease: Lease, before: Reservation, wanted: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return a part's new parameters: what it is of stays, and what is in use stays its own."""
    plugin = runtime.plugin(before.resource_type)
    fixed = {name: before.params[name] for name in plugin.fixed}
    amounts = {name: before.params[name] for name in _AMOUNTS if name in before.params}
    used = amounts if has_begun(lease) else {}
    kept = {name: max(amount, wanted[name]) for name, amount in used.items()}
    return {**wanted, **fixed, **kept}


def with_parts(lease: Lease, ids: Collection[str]) -> tuple[str, ...]:
    """Return the ids, and those of all that are parts of these."""
    parts = [one.id for id_ in ids for one in parts_of(lease, id_)]
    return tuple(dict.fromkeys((*ids, *parts)))


def parts_of(lease: Lease, stack_id: str) -> list[Reservation]:
    """Return the reservations that are parts of a stack's."""
    return [one for one in lease.reservations if one.stack_id == stack_id]
