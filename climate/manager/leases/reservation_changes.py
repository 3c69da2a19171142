"""Reservation changes: new parameters, added reservations and removed reservations of a lease.

If a user removes a reservation of a lease that has begun, the reservation is marked as leaving
(``LEAVING``). It keeps its resources until a manager runs an ``update_lease`` event, which reclaims
the resources. Then the reservation becomes DELETED. The same event gives users access to the
resources that other reservations gained.

A stack reservation is for a Heat stack of servers, volumes and so on. Each part of the stack is a
separate reservation of the same lease. A change of the stack's reservation also adds, changes or
removes its parts. Before the transaction, the plug-in reads the stack's parts from the cloud with
the requester's token. The transaction fails if the stack's reservation has changed since then.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from marshmallow import ValidationError
from sqlalchemy.orm import Session

from climate.core.errors import Conflict, Forbidden, InvalidInput, LeaseBusy
from climate.core.lease import on_start
from climate.core.lease.change import Change, check_resource_type
from climate.core.lease.lifecycle import ReservationStatus
from climate.core.lease.model import LEAVING, PART, UNAPPLIED, Lease, Reservation, StartWhen
from climate.core.matching.requirement import Requirement
from climate.db.engine import ids
from climate.db.leases import leases
from climate.manager.admission.requirements import (
    ReservationRequest,
    any_prepares,
    look_up,
    new_reservation,
    part_of,
)
from climate.manager.admission.resizing import give_back
from climate.manager.admission.resizing.by_name import check_distinct, find_named
from climate.manager.process.runtime import Catalog, Runtime
from climate.plugins.base import Requester, ResourcePlugin

# The same limit as for a new lease.
MAX_RESERVATIONS = 100
# The parameters that set the size of a reservation.
_AMOUNTS = ("amount", "size")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationChange:
    """A change of one reservation of a lease: the new values of some of its parameters.

    ``planned`` is what the plug-in read from the cloud for this change; None if it read nothing.
    ``give_back`` names the resources to give back, ``unused`` has their ids, or those that climate
    found. ``add_hosts`` names the resources to add, ``joining`` has their ids. ``details`` are
    stored with the change, for example what a plug-in has prepared.
    """

    id: str
    resource_type: str | None
    params: Mapping[str, Any]
    give_back: tuple[str, ...] = ()
    add_hosts: tuple[str, ...] = ()
    planned: "LookedUp | None" = None
    unused: frozenset[int] | None = None
    joining: frozenset[int] = frozenset()
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EarliestStart:
    """Move a lease to the earliest free window before ``end_by`` (None: start no later)."""

    end_by: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseChange:
    """A change of a lease. What is None or empty stays as it is.

    ``earliest`` means that climate searches for the start; ``dates`` then has no start and no end.
    ``reservations`` are changes, ``added`` are new ones, and ``removed`` are the ids of those to
    remove. ``gives_back`` allows a running reservation to give back unused resources.
    """

    name: str | None = None
    dates: Change = field(default_factory=Change)
    earliest: EarliestStart | None = None
    reservations: tuple[ReservationChange, ...] = ()
    added: tuple[ReservationRequest, ...] = ()
    removed: tuple[str, ...] = ()
    start_when: StartWhen | None = None
    gives_back: bool = field(default=False, compare=False)

    @property
    def keeps_bookings(self) -> bool:
        """Whether the change concerns neither the dates nor the reservations."""
        is_moved = self.dates != Change() or self.earliest is not None
        return not is_moved and not self.changes_reservations

    @property
    def changes_reservations(self) -> bool:
        """Whether the change adds, changes or removes reservations."""
        return bool(self.reservations or self.added or self.removed)

    @property
    def joining(self) -> dict[str, frozenset[int]]:
        """The ids of the resources that join each reservation by name, by reservation id."""
        return {each.id: each.joining for each in self.reservations if each.joining}


@dataclass(frozen=True, slots=True)
class LookedUp:
    """What a plug-in read from the cloud for a change of a reservation.

    ``before`` are the parameters that were stored when the plug-in read, ``request`` is the
    complete reservation after the change.
    """

    before: Mapping[str, Any]
    request: ReservationRequest


def complete(
    runtime: Runtime, lease: Lease, change: LeaseChange, requester: Requester
) -> tuple[ReservationChange, ...]:
    """Return the changed reservations, with the data that plug-ins read from the cloud added.

    These are the fields ``planned``, ``unused`` and ``joining``. No transaction may be open. Raises
    InvalidInput, Conflict, Forbidden, BackendUnavailable, and ValidationError of marshmallow.
    """
    plugins, completed = runtime.catalog.plugins, []
    for old, new in requested(runtime.catalog, lease, change.reservations):
        plugins[old.resource_type].check_change(old.params, new.params, requester)
    present = {r.id: r for r in lease.reservations if r.stays}
    for each in change.reservations:
        before, found = present.get(each.id), each
        if before and plugins[before.resource_type].looks_up_changes:
            planned = _looked_up(runtime.catalog, lease, before, each, requester)
            found = replace(each, planned=planned)
        if before and (each.give_back or each.add_hosts):
            named = find_named(runtime, lease, before, each.give_back, each.add_hosts)
            found = replace(found, unused=named.given, joining=named.joining)
            found = replace(found, params={**named.counts, **each.params})
        elif before and change.gives_back:
            params = new_params(plugins[before.resource_type], before, found)
            found = replace(found, unused=give_back.find_unused(runtime, lease, before, params))
        completed.append(found)
    check_distinct([each.joining for each in completed])
    return tuple(completed)


def _looked_up(
    catalog: Catalog,
    lease: Lease,
    before: Reservation,
    change: ReservationChange,
    requester: Requester,
) -> LookedUp:
    if requester.project_id != lease.project_id:
        raise Forbidden(
            "Only the project of the lease can change a stack: climate reads the contents of the"
            " stack with the token of that project"
        )
    plugin = catalog.plugins[before.resource_type]
    params = plugin.schema().load({**before.params, **change.params})
    _check_fixed(change.id, plugin, before.params, params)
    return LookedUp(before.params, look_up(catalog, before.resource_type, params, requester))


def requested(
    catalog: Catalog, lease: Lease, changes: Sequence[ReservationChange]
) -> Iterator[tuple[Reservation, ReservationRequest]]:
    """Yield each reservation with a valid change, and a request with all parameters after it."""
    present = {r.id: r for r in lease.reservations if r.stays}
    for change in changes:
        if before := present.get(change.id):
            with suppress(ValidationError):
                merged = {**before.params, **change.params}
                params = catalog.plugins[before.resource_type].schema().load(merged)
                yield before, ReservationRequest(resource_type=before.resource_type, params=params)


def change_reservations(
    runtime: Runtime, session: Session, lease: Lease, change: LeaseChange, now: datetime
) -> tuple[tuple[Reservation, ...], bool]:
    """Change, add and remove reservations of a lease, and store the reservations.

    The caller has locked the lease. Returns the remaining reservations, and whether a manager must
    reclaim resources of removed reservations. Raises InvalidInput, Conflict, LeaseBusy, and
    ValidationError of marshmallow.
    """
    catalog = runtime.catalog
    changed = _apply_changes(catalog, lease, change.reservations)
    changed, new, superfluous = _adapt_parts(runtime, lease, changed, change.reservations, now)
    new += _new_reservations(runtime, lease, change.added, now)
    _check_removed(lease, change.removed)
    removed = {*change.removed, *superfluous}
    removed |= {part.id for part in lease.reservations if part.stack_id in removed}
    if removed and all(r.id in removed or not r.stays for r in (*changed, *new)):
        raise InvalidInput(f"Lease {lease.id} needs a reservation: keep one, or delete the lease")
    leaving = _remove(catalog, session, lease, removed, now)
    reservations = tuple(r for r in (*changed, *new) if r.id not in removed)
    _store(catalog, session, lease, reservations, now)
    unused = {each.id: each.unused for each in change.reservations if each.unused is not None}
    shrunk = [(each, unused[each.id]) for each in reservations if each.id in unused]
    named = {each.id: len(each.joining) for each in change.reservations if each.give_back}
    give_back.check_count(lease, len(shrunk))
    position = len(lease.reservations) + len(new)
    leaving |= give_back.store(runtime, session, shrunk, named, position, now)
    return reservations, leaving


def _apply_changes(
    catalog: Catalog, lease: Lease, changes: Sequence[ReservationChange]
) -> tuple[Reservation, ...]:
    """Return all reservations of the lease, the changed ones with their new parameters.

    The new parameters are validated.
    """
    present = {reservation.id: reservation for reservation in lease.reservations}
    for change in changes:
        if change.id not in present or not present[change.id].stays:
            raise InvalidInput(f"Lease {lease.id} has no reservation {change.id}")
        before = present[change.id]
        check_resource_type(before.resource_type, change.resource_type)
        check_no_part(before)
        plugin = catalog.plugins[before.resource_type]
        after = new_params(plugin, before, change)
        _check_fixed(change.id, plugin, before.params, after)
        if lease.has_begun and not plugin.resizes:
            _check_size(change.id, plugin.requirement(before.params), plugin.requirement(after))
        details = {**before.details, **change.details}
        present[change.id] = replace(before, params=after, details=details)
    return tuple(present.values())


def new_params(
    plugin: ResourcePlugin, before: Reservation, change: ReservationChange
) -> Mapping[str, Any]:
    """Return all parameters of a reservation after a change.

    Raises LeaseBusy if the reservation has changed since the plug-in read the cloud for the change.
    """
    if change.planned is None:
        return dict(plugin.schema().load({**before.params, **change.params}))
    if change.planned.before != before.params:
        raise LeaseBusy(f"Reservation {before.id} was changed by others meanwhile: try again")
    return change.planned.request.params


def check_no_part(reservation: Reservation) -> None:
    """Raise Conflict if the reservation is for a part of a stack.

    A user changes or removes such a reservation only together with the stack's reservation.
    """
    if reservation.stack_id is not None:
        raise Conflict(
            f"Reservation {reservation.id} is for the {reservation.params[PART]} in a stack:"
            f" change or remove reservation {reservation.stack_id}, which is the stack's"
        )


def _check_fixed(
    id_: str, plugin: ResourcePlugin, before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    """Raise Conflict if a change gives a new value to a parameter that the plug-in has fixed.

    ``before`` and ``after`` are all parameters of the reservation ``id_`` before and after the
    change.
    """
    # A reservation of an older release lacks newer parameters: it has their defaults.
    old = {**plugin.schema().defaults(), **before}
    changed = (name for name in plugin.fixed if old[name] != after[name])
    if names := sorted(n for n in changed if (n, old[n], after[n]) not in plugin.unfixed):
        raise Conflict(
            f"{', '.join(names)} of reservation {id_} cannot change: add another, and remove"
            " this one"
        )


def _check_size(id_: str, before: Requirement, after: Requirement) -> None:
    """Raise Conflict if a change alters the size or the affinity of a reservation in use.

    ``before`` and ``after`` are what the reservation ``id_`` requires before and after the change.
    The size is the amount of resources in one unit, for example 4 VCPU in an instance. The number
    of units may change.
    """
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
    """Adapt the reservations for parts of stacks to the changed stacks.

    Plug-ins have already read from the cloud which parts the changed stacks have. Returns three
    values: ``reservations`` with their new parameters, new reservations for added parts, and the
    ids of the reservations for removed parts.
    """
    params: dict[str, Mapping[str, Any]] = {}
    new: list[Reservation] = []
    superfluous: list[str] = []
    for change in changes:
        if change.planned is None:
            continue
        stack = next(r for r in lease.reservations if r.id == change.id)
        parts = (r for r in lease.reservations if r.stack_id == stack.id and r.stays)
        present = {part.params[PART]: part for part in parts}
        children = change.planned.request.children
        needed = {child.params[PART]: part_of(stack, child) for child in children}
        for name, child in needed.items():
            if before := present.get(name):
                params[before.id] = _part_params(runtime.catalog, lease, before, child.params)
            else:
                new.append(
                    new_reservation(
                        runtime.catalog, lease.id, child, ids.repeatable(runtime.rng), now
                    )
                )
        superfluous += [part.id for name, part in present.items() if name not in needed]
    changed = tuple(replace(r, params=params.get(r.id, r.params)) for r in reservations)
    return changed, tuple(new), superfluous


def _part_params(
    catalog: Catalog, lease: Lease, before: Reservation, needed: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the new parameters of a reservation for one part of a stack.

    ``before`` is the reservation, ``needed`` the parameters that the changed stack needs.
    Parameters that must not change keep their values. If the lease has begun, amounts do not
    shrink.
    """
    plugin = catalog.plugins[before.resource_type]
    fixed = {name: before.params[name] for name in plugin.fixed}
    amounts = {name: before.params[name] for name in _AMOUNTS if name in before.params}
    in_use = amounts if lease.has_begun else {}
    larger = {name: max(amount, needed[name]) for name, amount in in_use.items()}
    return {**needed, **fixed, **larger}


def _new_reservations(
    runtime: Runtime, lease: Lease, requests: Sequence[ReservationRequest], now: datetime
) -> tuple[Reservation, ...]:
    """Return a new reservation for each item of ``requests``.

    First comes a reservation for each request, then one for each part of a requested stack. Raises
    InvalidInput if the lease would have too many reservations.
    """
    new = partial(new_reservation, runtime.catalog, lease.id, now=now)
    own = [
        request.prepared or new(request, id_=ids.repeatable(runtime.rng)) for request in requests
    ]
    parts = [
        new(part_of(stack, child), id_=ids.repeatable(runtime.rng))
        for stack, request in zip(own, requests, strict=True)
        for child in request.children
    ]
    if own and len(lease.reservations) + len(own) + len(parts) > MAX_RESERVATIONS:
        raise InvalidInput(
            f"A lease has at most {MAX_RESERVATIONS} reservations, those that are over included"
        )
    return (*own, *parts)


def _check_removed(lease: Lease, removed: Collection[str]) -> None:
    """Raise InvalidInput if the lease does not have one of these reservations (any more).

    Raises Conflict if the reservation is a part of a stack that stays in the lease.
    """
    live = {r.id: r for r in lease.reservations if r.status is not ReservationStatus.DELETED}
    for id_ in removed:
        if id_ in live and live[id_].stack_id not in removed:
            check_no_part(live[id_])
        if id_ not in live:
            raise InvalidInput(f"Lease {lease.id} has no reservation {id_}")


def _remove(
    catalog: Catalog, session: Session, lease: Lease, ids: Collection[str], now: datetime
) -> bool:
    """Remove reservations of a lease; return whether a manager must reclaim their resources.

    Before the start of the lease, the reservations are deleted. After the start, they are only
    marked as leaving. Raises Conflict if the lease has not started and a plug-in has prepared a
    removed reservation.
    """
    removed = [r for r in lease.reservations if r.id in ids]
    if not lease.has_begun:
        if any_prepares(catalog, removed):
            raise Conflict(
                f"climate has already prepared {', '.join(r.id for r in removed)} in the cloud:"
                " remove it after the lease starts, or delete the lease"
            )
        leases.delete_reservations(session, ids)
        return False
    for reservation in removed:
        details = {**reservation.details, LEAVING: True}
        leases.set_reservation(session, reservation.id, now, details=details)
    return bool(ids)


def needs_start(catalog: Catalog, lease: Lease, reservations: Sequence[Reservation]) -> set[str]:
    """Return the ids of those ``reservations`` that a manager must start again. Pure.

    ``lease`` is the lease before the change, ``reservations`` are its reservations after it. The
    result does not contain reservations that must be started again only to hand over new resources.
    """
    present = {reservation.id: reservation.params for reservation in lease.reservations}
    return {
        r.id
        for r in reservations
        if lease.has_begun
        and r.id in present
        and catalog.plugins[r.resource_type].needs_start(present[r.id], r.params)
    }


def _store(
    catalog: Catalog,
    session: Session,
    before: Lease,
    reservations: Sequence[Reservation],
    now: datetime,
) -> None:
    present = {reservation.id: reservation for reservation in before.reservations}
    unapplied = needs_start(catalog, before, reservations)
    for reservation in reservations:
        id_ = reservation.id
        stored = present.get(id_, reservation)
        old = stored.params
        marks = on_start.marks_of_change(before, old, reservation.params)
        pending = {UNAPPLIED: True} if id_ in unapplied else {}
        details = {**reservation.details, **marks, **pending}
        if details != stored.details:
            leases.set_reservation(session, id_, now, details=details)
        if reservation.params != old:
            leases.set_reservation(session, id_, now, params=dict(reservation.params))
    new = [reservation for reservation in reservations if reservation.id not in present]
    leases.insert_reservations(session, new, len(before.reservations))
