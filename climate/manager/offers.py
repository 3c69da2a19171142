"""Offers: an offer holds capacity for some minutes, until a user accepts it as a lease.

An offer is a lease with the status CREATING and the time ``offered_until``. No API of leases shows
it, no manager starts it, and limits count it as a lease. Its only event is a RELEASE event, due
when the offer expires.

Accepting, deleting and expiring lock the row of the lease, so only one of them succeeds. If climate
must call other services before it can confirm the lease, the request that accepts the offer first
extends the hold, and sets ``updated_at``; then the same steps follow as for a new lease
(``leases/holds``). If a service refuses, climate deletes the offer.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from climate.core.errors import LeaseBusy, LimitExceeded, NotFound, OfferExpired
from climate.core.lease import blazar_wire
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import Event, Lease
from climate.core.lease.schedule import RELEASE, Planned, plan
from climate.core.limits import Scope
from climate.core.notifications import event_type
from climate.core.settings import Settings
from climate.db import limits
from climate.db.engine import ids
from climate.db.events import queue as event_queue
from climate.db.leases import idempotency, leases
from climate.db.limits import Party
from climate.db.notifications import outbox
from climate.db.resources import pages
from climate.manager.admission.gates import Gate
from climate.manager.admission.requirements import any_acts_as_user
from climate.manager.leases import holds, trusts
from climate.manager.leases.create import (
    LeaseRequest,
    Owner,
    book,
    draft_once,
    gates_of,
    in_earliest_window,
)
from climate.manager.leases.idempotency import IdempotentRequest, replay
from climate.manager.process.runtime import Runtime, reading
from climate.observability import log_context
from climate.observability.metrics import counted

find_offers = reading(pages.find_offers)


@dataclass(frozen=True, slots=True)
class ExpiredOffer:
    """An offer that expired, and whose rows are deleted."""

    id: str
    project_id: str


class OfferGate(Gate):
    """Rejects an offer if its project has the maximum number of offers; notifies of a new one."""

    def __init__(self, settings: Settings, owner: Owner) -> None:
        self._rules = settings.offers
        exempt_from = settings.limits
        self._applies = exempt_from.apply_to(owner.project_id, owner.user_id, owner.roles)

    def before_refusal(self, _session: Session, _lease: Lease, _now: datetime) -> bool:
        """Allow the refusal: it does not matter how many offers the project has."""
        return True

    def before(
        self, session: Session, lease: Lease, now: datetime, _present: Lease | None = None
    ) -> None:
        """Lock the row of the project, and count its open offers. Raises LimitExceeded."""
        if not self._applies:
            return
        limits.lock(session, [Party(Scope.PROJECT, lease.project_id)])
        count, most = limits.count_offers(session, lease.project_id, now), self._rules.per_project
        if count >= most:
            raise LimitExceeded(
                f"Project {lease.project_id} has {count} open offers, and may have {most}: accept"
                " or delete an offer, or wait until one expires",
                {"limit": "offers", "scope": "project", "owner_id": lease.project_id}
                | {"allowed": most, "used": count, "asked": 1, "unit": "offers"},
            )

    def after(self, session: Session, lease: Lease, now: datetime) -> None:
        """Write the notification ``offer.made``."""
        outbox.write(session, event_type.OFFER_MADE, blazar_wire.offer_payload(lease), now)


@counted("offer")
def create_offer(
    runtime: Runtime,
    owner: Owner,
    request: LeaseRequest,
    hold: timedelta,
    idempotent: IdempotentRequest | None = None,
) -> Lease:
    """Admit a lease, hold its resources for the time ``hold``, and return it as an offer.

    The offer expires at the end of the lease at the latest. Raises LimitExceeded if the project has
    too many open offers, and the errors of ``create_lease`` except those of other services.
    """
    lease = _offered(draft_once(runtime, owner, request, idempotent), hold)
    gate = OfferGate(runtime.settings, owner)
    book(runtime, owner, lease, gates_of(runtime, owner, lease, idempotent, gate))
    runtime.wakeup.hint()
    return lease


def create_earliest_offer(
    runtime: Runtime,
    owner: Owner,
    request: LeaseRequest,
    length: timedelta,
    hold: timedelta,
    idempotent: IdempotentRequest | None = None,
) -> Lease:
    """Return an offer of the duration ``length`` in the earliest free window.

    The window lies between ``request.start`` and ``request.end``. Raises SearchTooLong, and the
    errors of ``create_offer``.
    """

    def create(timed: LeaseRequest) -> Lease:
        return create_offer(runtime, owner, timed, hold, idempotent)

    return in_earliest_window(runtime, owner, request, length, idempotent, create)


def _offered(lease: Lease, hold: timedelta) -> Lease:
    """Return a new lease as an offer: its only event is the RELEASE event at its expiry."""
    until = min(lease.created_at + hold, lease.window.end)
    release = Event.planned(Planned(RELEASE, until), lease.id, ids.new_id(), lease.created_at)
    return replace(lease, status=LeaseStatus.CREATING, offered_until=until, events=(release,))


def get_offer(runtime: Runtime, offer_id: str) -> Lease | ExpiredOffer:
    """Return an offer in any state, or the lease that it became.

    Raises NotFound if there is none, or if the lease of this id is held without being an offer.
    """
    with runtime.database.read() as session:
        try:
            lease = leases.get(session, offer_id)
        except NotFound:
            latest = outbox.latest_about(session, offer_id)
            if latest is None or latest[0] != event_type.OFFER_EXPIRED:
                raise
            return ExpiredOffer(offer_id, latest[1])
    if lease.status is LeaseStatus.CREATING and not lease.is_offer:
        raise NotFound(f"There is no offer {offer_id}")
    return lease


def check_open(offer: Lease | ExpiredOffer, now: datetime) -> Lease:
    """Return an offer that can be accepted or deleted at ``now``.

    Otherwise raises OfferExpired, LeaseBusy (a request is accepting it), or NotFound (it is a
    confirmed lease).
    """
    if isinstance(offer, ExpiredOffer):
        raise _expired(offer.id)
    if not offer.is_offer:
        raise NotFound(
            f"There is no open offer {offer.id}. A lease has this id: see /v2/leases/{offer.id}"
        )
    if not offer.is_unaccepted_offer:
        raise LeaseBusy(f"Another request is accepting offer {offer.id}: read the lease shortly")
    if offer.offered_until is None or offer.offered_until <= now:
        raise _expired(offer.id)
    return offer


def _expired(offer_id: str) -> OfferExpired:
    return OfferExpired(
        f"Offer {offer_id} has expired, and others can book its resources: create a new offer"
    )


@counted("accept")
def accept_offer(
    runtime: Runtime,
    owner: Owner,
    offer: Lease,
    name: str | None = None,
    idempotent: IdempotentRequest | None = None,
) -> Lease:
    """Confirm an offer, with another name if ``name`` is set; return the lease, with the same id.

    ``offer`` is the offer as the caller has read it. If another service must be called, this uses
    the token of ``owner``. Raises the errors of ``check_open``, Forbidden if climate must act as
    the user who made the offer, and the errors of ``HoldGate.settle``.
    """
    log_context.about_lease(offer.id)
    now = runtime.clock.now()
    if any_acts_as_user(runtime.catalog, offer.reservations):
        trusts.check_owner(owner.requester, offer)
    lease = _confirmed(offer, name or offer.name, now)
    try:
        if holds.needs_hold(runtime, offer):
            _begin_to_accept(runtime, offer, idempotent)
            lease = holds.HoldGate(runtime, owner.requester, idempotent).settle(lease)
        else:
            _accept_at_once(runtime, offer, lease, idempotent)
    except (NotFound, OfferExpired, LeaseBusy):
        replay(runtime.database, idempotent)  # the first request may have accepted it
        raise
    runtime.wakeup.hint()
    return lease


def _confirmed(offer: Lease, name: str, now: datetime) -> Lease:
    events = tuple(
        Event.planned(planned, offer.id, ids.new_id(), now)
        for planned in plan(offer.window, offer.notices, now)
    )
    status = LeaseStatus.PENDING
    changed = replace(offer, name=name, status=status, events=events, updated_at=now)
    return replace(changed, offered_until=None)


def _accept_at_once(
    runtime: Runtime, offer: Lease, lease: Lease, idempotent: IdempotentRequest | None
) -> None:
    """Store ``lease``, the confirmed offer, in one transaction."""
    answer = None if idempotent is None else idempotent.render(lease)

    def work(session: Session) -> None:
        now = runtime.clock.now()
        if idempotent is not None and answer is not None:
            idempotency.claim(session, idempotent.key, answer, now)
        if not _confirm_open(session, offer, lease, now):
            _lock_open(runtime, session, offer.id)  # raises the reason
            raise _expired(offer.id)
        holds.insert_events(session, offer, lease, now)

    runtime.database.write(work)


def _confirm_open(session: Session, offer: Lease, lease: Lease, now: datetime) -> bool:
    """Store ``lease`` in place of ``offer``, and remove the RELEASE event; return whether both.

    The first statement locks the lease, so the checks hold until the commit. If the result is
    False, the caller must roll back.
    """
    is_stored = leases.accept_offer(session, lease, now)
    return is_stored and event_queue.remove_untried(session, offer.events[0].id)


def _begin_to_accept(runtime: Runtime, offer: Lease, idempotent: IdempotentRequest | None) -> None:
    """Extend the hold of an offer by ``hold_timeout``, so that other services have time to decide.

    From now on, no other request can accept or delete the offer.
    """

    def work(session: Session) -> None:
        now = runtime.clock.now()
        if idempotent is not None:
            idempotency.claim_undecided(session, idempotent.key, offer.id, now)
        present = _lock_open(runtime, session, offer.id)
        until = now + runtime.settings.hold_timeout
        leases.extend_hold(session, offer.id, until, now)
        event_queue.reschedule(session, present.events[0].id, until, now)

    runtime.database.write(work)


def delete_offer(runtime: Runtime, offer_id: str) -> None:
    """Delete an open offer, and free its resources. Raises the errors of ``check_open``."""
    log_context.about_lease(offer_id)

    def work(session: Session) -> None:
        now = runtime.clock.now()
        present = _lock_open(runtime, session, offer_id)
        holds.delete_held(session, present, event_type.OFFER_DELETED, now)

    runtime.database.write(work)
    runtime.wakeup.hint()


def _lock_open(runtime: Runtime, session: Session, offer_id: str) -> Lease:
    """Lock and return an open offer. Raises the errors of ``check_open``."""
    try:
        present = leases.get(session, offer_id, lock=True)
    except NotFound:
        raise _absent(session, offer_id) from None
    check_open(present, runtime.clock.now())
    if holds.is_being_released(present):
        raise _expired(offer_id)
    return present


def _absent(session: Session, offer_id: str) -> NotFound | OfferExpired:
    latest = outbox.latest_about(session, offer_id)
    if latest is not None and latest[0] == event_type.OFFER_EXPIRED:
        return _expired(offer_id)
    return NotFound(f"There is no offer {offer_id}: it was deleted")
