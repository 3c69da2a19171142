"""Holds: a new lease occupies capacity while a service decides about it or prepares the cloud.

1. A transaction admits the lease and stores it as CREATING: the lease is *held*. No API shows it,
   and no manager starts it. Its only event is a ``RELEASE`` event, due after ``hold_timeout``.
2. With no transaction open, the process that serves the request calls the enforcement service,
   creates a trust, and calls the plug-ins' ``prepare`` with the requester's token.
3. Another transaction *confirms* the lease (stores it as PENDING, with its other events), or
   *releases* it (frees its resources and deletes it).

An *offer* (module ``manager/offers``) is held in the same way, until a user accepts it. A request
that accepts it begins with step 2. If climate releases an offer, it writes a notification.

A change of a lease is not held: plug-ins prepare its new reservations before the transaction that
stores the change (``prepared``).

If the process dies before step 3, a manager runs the ``RELEASE`` event. If a plug-in fails in step
2, a manager undoes the preparations in the cloud, and retries until that succeeds. If a manager has
released the lease before step 3, the process also undoes its preparations, but tries only once.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial

from sqlalchemy.orm import Session

from climate.core.errors import (
    BackendUnavailable,
    ClimateError,
    EnforcementDenied,
    EnforcementUnavailable,
    Forbidden,
    InvalidDate,
    NotFound,
)
from climate.core.lease import blazar_wire
from climate.core.lease.lifecycle import EventStatus, LeaseStatus
from climate.core.lease.model import Event, Lease, Reservation
from climate.core.lease.schedule import RELEASE, Planned
from climate.core.notifications import event_type
from climate.core.notifications.event_type import EventType
from climate.db.engine import ids
from climate.db.engine.database import is_unavailable
from climate.db.events import queue as event_queue
from climate.db.leases import idempotency, leases
from climate.db.notifications import outbox
from climate.db.resources import allocations
from climate.manager.admission.gates import Gate
from climate.manager.admission.requirements import (
    ReservationRequest,
    any_acts_as_user,
    any_prepares,
    new_reservation,
)
from climate.manager.claims import Claim, Work, close, lease_of, retry_later
from climate.manager.enforcement import Enforcer
from climate.manager.leases import trusts
from climate.manager.leases.finalizers import schedule_finalizers
from climate.manager.leases.idempotency import IdempotentRequest
from climate.manager.leases.read import as_enforced
from climate.manager.leases.reservation_changes import LeaseChange, new_params
from climate.manager.process.periodic_task import logged
from climate.manager.process.runtime import Catalog, Runtime, Store
from climate.plugins.base import NotYet, Requester

LOG = logging.getLogger(__name__)


def needs_hold(runtime: Runtime, lease: Lease) -> bool:
    """Return whether climate must call other services before it confirms a new lease."""
    return (
        (runtime.enforcer is not None and runtime.enforcer.checks_create)
        or any_acts_as_user(runtime.catalog, lease.reservations)
        or any_prepares(runtime.catalog, lease.reservations)
    )


class HoldGate(Gate):
    """Stores a new lease as not confirmed (CREATING), calls other services, then confirms it.

    The lease occupies its resources during these calls. If a service refuses or fails, the gate
    deletes the lease. If the request has an idempotency key, the transaction that confirms the
    lease also stores the answer for repetitions of the request.
    """

    def __init__(
        self, runtime: Runtime, requester: Requester, idempotent: IdempotentRequest | None
    ) -> None:
        self._runtime = runtime
        self._requester = requester
        self._idempotent = idempotent

    def before_refusal(self, _session: Session, _lease: Lease, _now: datetime) -> bool:
        """Allow the refusal: other services are only called for a lease with resources."""
        return True

    def stored(self, lease: Lease) -> Lease:
        """Return the lease as it is stored while other services decide about it: status CREATING.

        The only event of the stored lease is ``RELEASE``, due after ``hold_timeout``. If the lease
        is not confirmed by then, this event deletes the lease.
        """
        due_at = lease.created_at + self._runtime.settings.hold_timeout
        release = Event.planned(Planned(RELEASE, due_at), lease.id, ids.new_id(), lease.created_at)
        return replace(lease, status=LeaseStatus.CREATING, events=(release,))

    def settle(self, lease: Lease) -> Lease:
        """Call other services; then confirm and return the lease, or delete it and raise.

        The services are the enforcement service, Keystone and the plug-ins. Raises InvalidDate,
        EnforcementDenied, EnforcementUnavailable, and the errors of trusts and plug-ins.
        """
        runtime, idempotent = self._runtime, self._idempotent
        if runtime.enforcer is not None and runtime.enforcer.checks_create:
            _check_with_service(runtime.store, runtime.enforcer, lease)
        try:
            confirmed = _prepare(runtime, lease, self._requester)
        except Exception:
            runtime.database.write(lambda session: _release_unprepared(runtime, session, lease.id))
            runtime.wakeup.hint()
            raise
        now = runtime.clock.now()
        # Managers can claim these events only from now on, so they count as created now.
        events = tuple(replace(event, created_at=now) for event in confirmed.events)
        confirmed = replace(confirmed, events=events)
        answer = None if idempotent is None else idempotent.render(confirmed)

        def work(session: Session) -> bool:
            if not _confirm(session, confirmed, now):
                return False
            if idempotent is not None and answer is not None:
                idempotency.decide(session, idempotent.key, answer)
            return True

        if not runtime.database.write(work):
            # The manager that released the lease may have missed the last preparations.
            _discard(runtime.catalog, confirmed)
            raise _hold_expired(runtime.enforcer)
        return confirmed


def _check_with_service(store: Store, enforcer: Enforcer, lease: Lease) -> None:
    """Call the enforcement service; if it does not allow the lease, delete the lease and raise.

    The lease is stored but not confirmed (CREATING). Raises EnforcementDenied,
    EnforcementUnavailable.
    """
    with store.database.read() as session:
        body = as_enforced(session, lease)
    try:
        enforcer.check_create(body)
    except EnforcementDenied:
        now = store.clock.now()
        store.database.write(lambda session: _delete_held(session, lease.id, now))
        raise
    except EnforcementUnavailable:
        now = store.clock.now()
        store.database.write(lambda session: _release_and_report(enforcer, session, lease.id, now))
        raise


def _prepare(runtime: Runtime, lease: Lease, requester: Requester) -> Lease:
    """Create the Keystone trust of an unconfirmed lease, and call the plug-ins' ``prepare``.

    Creates no trust if no plug-in acts as the user. Calls no plug-in if none needs to prepare the
    cloud. Returns the lease with its trust and the plug-ins' details. Raises InvalidDate if the end
    of the lease has passed meanwhile.
    """
    if any_acts_as_user(runtime.catalog, lease.reservations):
        lease = replace(lease, trust_id=trusts.make(runtime, requester))
        now = runtime.clock.now()
        if not runtime.database.write(lambda session: _store_trust(session, lease, now)):
            raise _hold_expired(runtime.enforcer)
    if any_prepares(runtime.catalog, lease.reservations):
        reservations = tuple(
            replace(reservation, details={**reservation.details, **details})
            for reservation in lease.reservations
            for plugin in [runtime.plugin(reservation.resource_type)]
            for details in [plugin.prepare(lease, reservation, requester)]
        )
        lease = replace(lease, reservations=reservations)
    if lease.window.end <= runtime.clock.now():
        raise InvalidDate("The end of the lease has passed while climate waited for other services")
    return lease


@contextmanager
def prepared(
    runtime: Runtime, lease: Lease, change: LeaseChange, requester: Requester
) -> Iterator[LeaseChange]:
    """Return a context with a change of a lease, for which plug-ins have prepared the cloud.

    If the block raises an error, the plug-ins undo what they prepared for added reservations, in
    one attempt. But if the database did not answer, the change may be stored, and nothing is
    undone. Another request may have prepared the same changed reservation, so that stays until the
    lease ends. Raises Forbidden, and the errors of ``prepare``.
    """
    added: list[Reservation] = []
    try:
        ready = _prepare_change(runtime, lease, change, requester, added)
    except Exception:
        _undo(runtime, lease, added)
        raise
    try:
        yield ready
    except Exception as error:
        if not is_unavailable(error):
            _undo(runtime, lease, added)
        raise


def _prepare_change(
    runtime: Runtime,
    lease: Lease,
    change: LeaseChange,
    requester: Requester,
    added: list[Reservation],
) -> LeaseChange:
    """Let the plug-ins prepare the cloud; return the change with their details.

    Appends each added reservation to ``added`` before its plug-in prepares anything.
    """
    catalog = runtime.catalog
    changes = list(_newly_prepared(catalog, lease, change))
    if changes or any_prepares(catalog, change.added):
        _check_project(lease, requester)
    new = partial(new_reservation, catalog, lease.id, now=runtime.clock.now())

    def prepare(reservation: Reservation) -> Reservation:
        details = runtime.plugin(reservation.resource_type).prepare(lease, reservation, requester)
        return replace(reservation, details={**reservation.details, **details})

    def prepare_added(request: ReservationRequest) -> ReservationRequest:
        if not any_prepares(catalog, [request]):
            return request
        added.append(new(request, id_=ids.new_id()))
        return replace(request, prepared=prepare(added[-1]))

    details = {each.id: prepare(each).details for each in changes}
    return replace(
        change,
        reservations=tuple(
            replace(each, details={**each.details, **details.get(each.id, {})})
            for each in change.reservations
        ),
        added=tuple(map(prepare_added, change.added)),
    )


def _check_project(lease: Lease, requester: Requester) -> None:
    if requester.project_id != lease.project_id:
        raise Forbidden(
            "Only the project of the lease can make this change: climate creates objects in the"
            " cloud with the token of that project"
        )


def _undo(runtime: Runtime, lease: Lease, reservations: Iterable[Reservation]) -> None:
    for reservation in reservations:
        failure = f"cannot undo the preparations of reservation {reservation.id}"
        with logged(failure), suppress(NotYet):  # NotYet: the cloud has begun
            runtime.plugin(reservation.resource_type).discard(lease, reservation)


def _newly_prepared(catalog: Catalog, lease: Lease, change: LeaseChange) -> Iterator[Reservation]:
    """Yield the reservations that need preparation after the change, but not before it."""
    present = {reservation.id: reservation for reservation in lease.reservations}
    for each in change.reservations:
        if before := present.get(each.id):
            plugin = catalog.plugins[before.resource_type]
            after = replace(before, params=new_params(plugin, before, each))
            if plugin.prepares(after.params) and not plugin.prepares(before.params):
                yield after


def _store_trust(session: Session, lease: Lease, now: datetime) -> bool:
    """Store the trust id of an unconfirmed lease; return whether climate still holds the lease.

    If a manager has released the lease already, the function does not store the id, but an event
    that revokes the trust, and returns False. Otherwise it returns True, and the trust is revoked
    when the lease is over.
    """
    assert lease.trust_id is not None  # noqa: S101 - it was just created
    if _lock_held(session, lease.id) is None:
        trusts.schedule_revocation(session, lease.trust_id, now)
        return False
    leases.set_trust(session, lease.id, lease.trust_id)
    return True


def _hold_expired(enforcer: Enforcer | None) -> ClimateError:
    if enforcer is not None and enforcer.checks_create:
        return EnforcementUnavailable(
            "The enforcement service took so long that climate released the lease: try again"
        )
    return BackendUnavailable("Preparing the lease took so long that it was released: try again")


def _confirm(session: Session, lease: Lease, now: datetime) -> bool:
    """Lock a lease, and confirm it as ``confirm`` does.

    Returns False if ``hold_timeout`` has passed and a manager has deleted the lease, or begun to
    delete it.
    """
    present = _lock_held(session, lease.id)
    if present is None or is_being_released(present):
        return False
    confirm(session, present, lease, now)
    return True


def is_being_released(present: Lease) -> bool:
    """Return whether a manager has claimed the RELEASE event of ``present``, a locked lease."""
    return any(event.attempt or event.status is not EventStatus.UNDONE for event in present.events)


def confirm(session: Session, present: Lease, lease: Lease, now: datetime) -> None:
    """Confirm a lease: store it as PENDING instead of CREATING, with its details and events.

    ``present`` is the stored lease, which the caller has locked. ``lease`` is the confirmed one.
    """
    event_queue.remove(session, [event.id for event in present.events])
    leases.update(session, lease)
    for before, after in zip(present.reservations, lease.reservations, strict=True):
        if after.details != before.details:
            leases.set_reservation(session, after.id, now, details=dict(after.details))
    insert_events(session, present, lease, now)


def insert_events(session: Session, present: Lease, lease: Lease, now: datetime) -> None:
    """Store the events of a confirmed lease, and write its notifications.

    ``present`` is the lease as it was before the confirmation.
    """
    told = [(event_type.LEASE_CREATE, blazar_wire.payload(lease))]
    if present.is_offer:
        told.insert(0, (event_type.OFFER_ACCEPTED, blazar_wire.offer_payload(lease)))
    told_rows, lead = outbox.rows(told, now), lease.start.lead
    leases.insert_events(session, lease.events, told_rows, lead=lead)


def _release_unprepared(runtime: Runtime, session: Session, lease_id: str) -> None:
    """Free the resources of a lease that cannot be confirmed because its preparation failed.

    If plug-ins may have changed the cloud, a manager undoes these changes soon and then deletes the
    lease. Otherwise the function deletes the lease now.
    """
    lease = _lock_held(session, lease_id)
    if lease is None:
        return
    now = runtime.clock.now()
    if not any_prepares(runtime.catalog, lease.reservations):
        _release_and_report(runtime.enforcer, session, lease_id, now)
        return
    allocations.release(session, [reservation.id for reservation in lease.reservations])
    for event in lease.events:
        if event.status is EventStatus.UNDONE:
            event_queue.reschedule(session, event.id, now, now)
            if lease.is_offer:
                leases.extend_hold(session, lease.id, now, now)


def _delete_held(session: Session, lease_id: str, now: datetime) -> None:
    lease = _lock_held(session, lease_id)
    if lease is not None:
        delete_held(session, lease, event_type.OFFER_DELETED, now)


def delete_held(session: Session, lease: Lease, told: EventType, now: datetime) -> None:
    """Delete a locked lease that is not confirmed; if it is an offer, write a notification.

    ``told`` is the type of the notification.
    """
    leases.delete(session, lease.id)
    if lease.is_offer:
        outbox.write(session, told, blazar_wire.offer_payload(lease), now)


def _release_and_report(
    enforcer: Enforcer | None,
    session: Session,
    lease_id: str,
    now: datetime,
    told: EventType = event_type.OFFER_DELETED,
) -> None:
    """Delete a lease that is not confirmed; store events that revoke its trust and report its end.

    The end must be reported, because the enforcement service may have allowed the lease, and then
    believes that the lease exists. The service has not heard of an offer that no request has begun
    to accept. ``told`` is the type of the notification if the lease is an offer.
    """
    lease = _lock_held(session, lease_id)
    if lease is not None:
        if not lease.is_unaccepted_offer:
            schedule_finalizers(enforcer, session, lease, now)
        delete_held(session, lease, told, now)


def _lock_held(session: Session, lease_id: str) -> Lease | None:
    """Lock and return a lease if it is still not confirmed (status CREATING), else None."""
    try:
        lease = leases.get(session, lease_id, lock=True)
    except NotFound:
        return None
    return lease if lease.status is LeaseStatus.CREATING else None


def begin_release(session: Session, lease: Lease, event: Event) -> Work:
    """Free the resources of a lease that was not confirmed within ``hold_timeout``.

    This is the first step of the lease's ``RELEASE`` event, which this manager has claimed. Returns
    the work of the second step, which the function ``expire`` does.
    """
    allocations.release(session, [reservation.id for reservation in lease.reservations])
    return Work(event, lease, {})


def expire(runtime: Runtime, claim: Claim, lease: Lease) -> None:
    """Finish the ``RELEASE`` event of a lease that was not confirmed in time.

    Call the plug-ins to undo what they prepared in the cloud, and delete the lease. If a plug-in
    fails, store when to retry the event. No transaction may be open.
    """
    now = runtime.clock.now()

    def finish(session: Session) -> None:
        present = lease_of(session, claim)
        if present is not None and close(session, claim, now, EventStatus.DONE):
            expired = event_type.OFFER_EXPIRED
            _release_and_report(runtime.enforcer, session, present.id, now, expired)

    try:
        if not lease.is_unaccepted_offer:  # else nothing was prepared
            _discard(runtime.catalog, lease)
    except Exception as error:  # noqa: BLE001 - the event is retried after any failure
        LOG.warning("cannot undo the preparations of lease %s, will try again: %s", lease.id, error)
        retry_later(runtime, claim, str(error))
    else:
        runtime.database.write(finish)


def _discard(catalog: Catalog, lease: Lease) -> None:
    for reservation in lease.reservations:
        catalog.plugins[reservation.resource_type].discard(lease, reservation)
