"""Which reservations a changed lease has: some with other parameters, some new, some no more.

What a lease that has begun gains is handed over, and what it loses is taken back, by an
``update_lease`` event. A reservation that is leaving is marked so, keeps its resources until they
were taken back, and is DELETED then.
"""

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from marshmallow import ValidationError
from sqlalchemy.orm import Session

from climate.core.change import check_resource_type
from climate.core.errors import Conflict, InvalidInput, LeaseBusy
from climate.core.lease import LEAVING, PART, Lease, Reservation
from climate.core.lifecycle import ReservationStatus
from climate.core.requirement import Requirement
from climate.db import leases
from climate.manager.admission.requirements import ReservationRequest, arranging, new_reservation
from climate.manager.leases.create import has_begun
from climate.manager.runtime import Runtime
from climate.plugins.base import ResourcePlugin

# As many as a lease may have when it is made.
MOST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationChange:
    """New parameters for one reservation of the lease; those not named stay.

    ``planned`` is what they come to, if that had to be looked up.
    """

    id: str
    resource_type: str | None
    params: Mapping[str, Any]
    planned: "Planned | None" = None


@dataclass(frozen=True, slots=True)
class Planned:
    """What was looked up for a change: the parameters before it, and all of them with it."""

    before: Mapping[str, Any]
    request: ReservationRequest


def changed(
    runtime: Runtime, lease: Lease, changes: Sequence[ReservationChange]
) -> tuple[Reservation, ...]:
    """Return the reservations with their new parameters, checked as a whole by the plugin."""
    present = {reservation.id: reservation for reservation in lease.reservations}
    for change in changes:
        if change.id not in present or not present[change.id].stays:
            raise InvalidInput(f"Lease {lease.id} has no reservation {change.id}")
        before = present[change.id]
        check_resource_type(before.resource_type, change.resource_type)
        check_own(before)
        plugin = runtime.plugin(before.resource_type)
        after = _after(plugin, before, change)
        check_fixed(change.id, plugin.fixed, before.params, after)
        if has_begun(lease) and not plugin.resizes:
            _check_size(change.id, plugin.requirement(before.params), plugin.requirement(after))
        present[change.id] = replace(before, params=after)
    return tuple(present.values())


def _after(
    plugin: ResourcePlugin, before: Reservation, change: ReservationChange
) -> Mapping[str, Any]:
    if change.planned is None:
        after: Mapping[str, Any] = plugin.schema().load({**before.params, **change.params})
        return after
    if change.planned.before != before.params:
        raise LeaseBusy(f"Reservation {before.id} was changed by others meanwhile: try again")
    return change.planned.request.params


def check_own(reservation: Reservation) -> None:
    """Raise Conflict for a part of a stack."""
    if reservation.stack_id is not None:
        raise Conflict(
            f"Reservation {reservation.id} is for the {reservation.params[PART]} in a stack:"
            f" change or remove reservation {reservation.stack_id}, which is the stack's"
        )


def wished(
    runtime: Runtime, lease: Lease, changes: Sequence[ReservationChange]
) -> Iterator[ReservationRequest]:
    """Yield what the changes of reservations ask for, as far as they are sound."""
    present = {one.id: one for one in lease.reservations if one.stays}
    for change in changes:
        if before := present.get(change.id):
            with suppress(ValidationError):
                asked = {**before.params, **change.params}
                params = runtime.plugin(before.resource_type).schema().load(asked)
                yield ReservationRequest(resource_type=before.resource_type, params=params)


def check_fixed(
    id_: str, fixed: Collection[str], before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    """Raise Conflict if what was looked up for a reservation would be something else."""
    if other := sorted(name for name in fixed if before[name] != after[name]):
        raise Conflict(
            f"{', '.join(other)} of reservation {id_} cannot change: add another, and remove"
            " this one"
        )


def _check_size(id_: str, before: Requirement, after: Requirement) -> None:
    """Raise Conflict if what is in use would be of another size, or elsewhere."""
    if (before.amounts, before.layout) != (after.amounts, after.layout):
        raise Conflict(
            f"Reservation {id_} is in use: there can be more of the same, but neither its size nor"
            " its affinity can change"
        )


def added(
    runtime: Runtime, lease: Lease, requests: Sequence[ReservationRequest], now: datetime
) -> tuple[Reservation, ...]:
    """Return the reservations that are new.

    Raises InvalidInput for too many, Conflict for what must be arranged before a lease is.
    """
    if wrong := sorted({r.resource_type for r in requests if arranging(runtime, [r])}):
        raise Conflict(
            f"{', '.join(wrong)} cannot be added to a lease that is there: ask for another lease"
        )
    if len(lease.reservations) + len(requests) > MOST:
        raise InvalidInput(f"A lease has at most {MOST} reservations, those that are over included")
    return tuple(
        new_reservation(runtime, lease.id, asked, new_id(runtime), now) for asked in requests
    )


def new_id(runtime: Runtime) -> str:
    """Return an id that a rehearsal of the same change would choose, too."""
    return str(uuid.UUID(int=runtime.rng.getrandbits(128), version=4))


def check_removed(lease: Lease, ids: Collection[str]) -> None:
    """Raise InvalidInput for a reservation that the lease has not, or not any more.

    Raises Conflict for a part of one that stays.
    """
    live = {r.id: r for r in lease.reservations if r.status is not ReservationStatus.DELETED}
    for id_ in ids:
        if id_ in live and live[id_].stack_id not in ids:
            check_own(live[id_])
        if id_ not in live:
            raise InvalidInput(f"Lease {lease.id} has no reservation {id_}")


def remove(
    runtime: Runtime, session: Session, lease: Lease, ids: Collection[str], now: datetime
) -> bool:
    """Remove reservations; tell whether something is to be taken back for that.

    Raises Conflict for one that has something in the cloud before its start.
    """
    leaving = [one for one in lease.reservations if one.id in ids]
    if not has_begun(lease):
        if arranging(runtime, leaving):
            raise Conflict(
                f"Something was made in the cloud for {', '.join(one.id for one in leaving)}"
                " already: it can be removed once the lease runs, or with the lease"
            )
        leases.delete_reservations(session, ids)
        return False
    for reservation in leaving:
        details = {**reservation.details, LEAVING: True}
        leases.set_reservation(session, reservation.id, now, details=details)
    return bool(ids)


def store(
    session: Session, before: Lease, reservations: Sequence[Reservation], now: datetime
) -> None:
    """Store new reservations, and the parameters of those that have changed."""
    present = {reservation.id: reservation for reservation in before.reservations}
    for one in reservations:
        if one.id in present and one.params != present[one.id].params:
            leases.set_reservation(session, one.id, now, params=dict(one.params))
    fresh = [one for one in reservations if one.id not in present]
    leases.insert_reservations(session, fresh, len(before.reservations))
