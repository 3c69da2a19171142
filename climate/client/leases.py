"""The leases and offers of a project: create, list, read, change, end, delete, wait for them."""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, TypedDict, Unpack

import msgspec

from climate.client import reservations, waiting
from climate.client.errors import ClientError, NotEnoughResources, NotFound
from climate.client.models import (
    DryRun,
    Lease,
    LeaseReadiness,
    LeaseResource,
    Model,
    PastLease,
    Reservation,
)
from climate.client.transport import Answer, Transport, convert, moment, segment

#: A time: an aware datetime, or text as the API reads it, such as ``now`` or ISO 8601.
Time = datetime | str

_PATH, _OFFERS = "/leases", "/offers"
_OVER = "TERMINATED"


class LeaseOptions(TypedDict, total=False):
    """What a new lease can have besides its name. ``duration`` is a timedelta or seconds.

    Either ``end`` or ``duration`` is required. ``start`` is ``now`` by default; ``asap`` means as
    soon as there is enough, and needs ``duration`` and ``end_by``. With ``wait``, which may have
    ``until`` and ``priority``, such a lease waits in the wait list, and ``end_by`` is optional.
    """

    start: Time
    end: Time
    duration: timedelta | int
    end_by: Time
    before_end: Time
    start_when: str
    reservations: Sequence[reservations.ReservationRequest]
    events: Sequence[Mapping[str, Any]]
    wait: Mapping[str, Any]


class LeaseChanges(TypedDict, total=False):
    """What can change of a lease. What is absent stays.

    ``start`` can be ``now`` or ``asap``: as early as there is enough, to end at ``end_by`` at the
    latest. ``reservations`` has ``id`` and changed ``params`` of reservations;
    ``remove_reservations`` has ids. ``wait`` has a new ``until`` or ``priority`` of a lease in the
    wait list; nothing else may change with it.
    """

    name: str
    start: Time
    end: Time
    end_by: Time
    duration: timedelta | int
    before_end: Time
    start_when: str
    reservations: Sequence[Mapping[str, Any]]
    add_reservations: Sequence[reservations.ReservationRequest]
    remove_reservations: Sequence[str]
    wait: Mapping[str, Any]


class LeaseFilter(TypedDict, total=False):
    """Which leases to list, and in which order: ``start``, ``end``, ``created`` or ``name``.

    ``-start`` means the latest start first, and is the default. ``limit`` is the size of a page.
    """

    name: str
    status: Sequence[str]
    resource_type: str
    starts_before: Time
    starts_after: Time
    ends_before: Time
    ends_after: Time
    sort: str
    all_projects: bool
    limit: int


class PastLeaseFilter(TypedDict, total=False):
    """Which past leases to list; ``sort`` is ``ended`` or ``-ended``."""

    user_id: str
    ended_before: Time
    ended_after: Time
    sort: str
    all_projects: bool
    limit: int


class Offer(Model, frozen=True, kw_only=True):
    """An offer: it holds capacity until it is accepted, or expires at ``expires_at``."""

    id: str
    name: str
    user_id: str
    project_id: str
    expires_at: datetime
    start: datetime
    end: datetime
    start_when: str = "scheduled"
    reservations: list[Reservation]
    created_at: datetime


class Ambiguous(ClientError):
    """Several leases have the name."""


class Leases:
    """The leases of the caller's project. All methods raise the errors of ``Transport.send``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self, name: str, *, idempotency_key: str | None = None, **options: Unpack[LeaseOptions]
    ) -> Lease:
        """Create a lease. The request is repeated safely if the connection breaks.

        A program that may be restarted passes an ``idempotency_key``: the same key creates the
        lease once. Raises NotEnoughResources with alternatives, LimitExceeded, InvalidRequest.
        """
        return self._create(_request(name, options), idempotency_key)

    def check(self, name: str, **options: Unpack[LeaseOptions]) -> DryRun:
        """Check the request to create a lease, without creating it. Raises as ``create`` does."""
        return self._dry_run(None, _request(name, options))

    def accept(
        self, refusal: NotEnoughResources, number: int, *, idempotency_key: str | None = None
    ) -> Lease:
        """Request alternative ``number`` (from 1) of a refusal, and return the lease.

        Nothing was held for the alternative, so this may be refused, too. The idempotency key can
        be that of the refused request. Raises NoSuchAlternative if there is no such alternative, or
        if it cannot be requested from here.
        """
        body = reservations.alternative_request(refusal, number)
        body.pop("hold", None)  # the refused request may have been one for an offer
        if refusal.lease_id is None:
            return self._create(body, idempotency_key)
        return self._change(refusal.lease_id, body, None)

    def list(self, **wanted: Unpack[LeaseFilter]) -> Iterator[Lease]:
        """Yield the leases of the project; pages are requested as they are needed."""
        return self._transport.pages(_PATH, "leases", Lease, wanted)

    def past(self, **wanted: Unpack[PastLeaseFilter]) -> Iterator[PastLease]:
        """Yield the leases that had started, and were removed after their end."""
        return self._transport.pages("/past-leases", "past_leases", PastLease, wanted)

    def get(self, lease_id: str) -> Lease:
        """Return a lease, with its ETag. Raises NotFound."""
        return _with_etag(self._transport.send("GET", _path(lease_id)))

    def find(self, name_or_id: str, *, timeout: float | None = None) -> Lease:
        """Return the lease with this id or name. Raises NotFound, or Ambiguous.

        If one lease of several with the name is not over, it is meant. With a ``timeout`` in
        seconds, wait so long for a service that does not answer, then raise WaitTimedOut.
        """
        if timeout is not None:
            deadline = time.monotonic() + timeout
            find = Leases(self._transport.until(deadline)).find
            return waiting.patiently_until(deadline, name_or_id, lambda: find(name_or_id))
        try:
            if _is_id(name_or_id):
                return self.get(name_or_id)
        except NotFound:
            pass  # a name can look like an id
        named = list(self.list(name=name_or_id))
        chosen = [lease for lease in named if lease.status != _OVER] or named
        if not chosen:
            raise NotFound(404, {"code": "not_found", "detail": f"No lease is named {name_or_id}."})
        if len(chosen) > 1:
            ids = ", ".join(lease.id for lease in chosen)
            raise Ambiguous(
                f"{len(chosen)} leases are named {name_or_id}; name one by its id: {ids}"
            )
        return self.get(chosen[0].id)

    def update(
        self, lease_id: str, *, if_match: str | None = None, **changes: Unpack[LeaseChanges]
    ) -> Lease:
        """Change a lease: all of it, or nothing. Return the lease.

        With ``if_match``, an ETag, raise Changed if the lease has changed since.
        """
        return self._change(lease_id, _encoded(changes), if_match)

    def check_update(self, lease_id: str, **changes: Unpack[LeaseChanges]) -> DryRun:
        """Check a change of a lease, without changing it. Raises as ``update`` does."""
        return self._dry_run(lease_id, _encoded(changes))

    def end(self, lease_id: str) -> Lease:
        """End a running lease now, and keep its record."""
        return self.update(lease_id, end="now")

    def extend(
        self, lease_id: str, *, by: timedelta | None = None, until: Time | None = None
    ) -> Lease:
        """Move the end of a lease, ``by`` a time from its present end or ``until`` a time."""
        if (by is None) == (until is None):
            raise ValueError("extend needs either by or until")
        if until is not None:
            return self.update(lease_id, end=until)
        lease = self.get(lease_id)
        return self.update(lease_id, if_match=lease.etag, end=lease.end + (by or timedelta()))

    def delete(self, lease_id: str) -> bool:
        """Delete a lease. Return whether it is gone; if not, a manager is ending it first."""
        return self._transport.send("DELETE", _path(lease_id)).status == HTTPStatus.NO_CONTENT

    def start_reservation(self, lease_id: str, reservation_id: str) -> Reservation:
        """Let climate create what a reservation with ``on_start: manual`` is for.

        ``run_state`` of the result is ``starting``, or ``started`` if that is done. Raises Conflict
        if the lease does not run, if ``on_start`` is another, or while the reservation is stopped.
        """
        return self._set_run_state(lease_id, reservation_id, "start")

    def stop_reservation(self, lease_id: str, reservation_id: str) -> Reservation:
        """Let climate delete what it created for a reservation; its capacity stays reserved.

        Raises as ``start_reservation`` does.
        """
        return self._set_run_state(lease_id, reservation_id, "stop")

    def _set_run_state(self, lease_id: str, reservation_id: str, verb: str) -> Reservation:
        path = f"{_path(lease_id)}/reservations/{segment(reservation_id)}/{verb}"
        return convert(self._transport.send("POST", path, safe=True).body, Reservation)

    def resources(self, lease_id: str) -> Iterator[LeaseResource]:
        """Yield the resources, such as hosts, that a lease has or will have."""
        return self._transport.pages(f"{_path(lease_id)}/resources", "resources", LeaseResource)

    def readiness(self, lease_id: str) -> LeaseReadiness:
        """Return whether provisioners have prepared the hosts of a lease."""
        return self._transport.get(f"{_path(lease_id)}/readiness", LeaseReadiness)

    def wait_until_active(
        self,
        lease_id: str,
        *,
        timeout: float | None = None,
        progress: waiting.Callback | None = None,
    ) -> Lease:
        """Wait until climate has handed over all resources, and return the lease.

        ``progress`` is called at the beginning and with each change. ``timeout`` is in seconds; by
        default there is no limit. A service that does not answer for a while is waited for, too.
        Raises WaitFailed if the lease fails to start, ends or is deleted, and WaitTimedOut.
        """
        return self._wait(lease_id, timeout, progress).until_active()

    def wait_until_over(
        self,
        lease_id: str,
        *,
        timeout: float | None = None,
        progress: waiting.Callback | None = None,
    ) -> Lease | None:
        """Wait until a lease has ended, and return it; None if it is deleted.

        The parameters are those of ``wait_until_active``. Raises WaitTimedOut.
        """
        return self._wait(lease_id, timeout, progress).until_over()

    def _wait(
        self, lease_id: str, timeout: float | None, progress: waiting.Callback | None
    ) -> waiting.Wait:
        deadline = None if timeout is None else time.monotonic() + timeout
        transport = self._transport.until(deadline)
        return waiting.Wait(transport, Leases(transport), lease_id, deadline, progress)

    def _create(self, body: Mapping[str, Any], key: str | None) -> Lease:
        headers = {"Idempotency-Key": key or str(uuid.uuid4())}
        try:
            return _with_etag(self._transport.send("POST", _PATH, body=body, headers=headers))
        except NotEnoughResources as refusal:
            refusal.request = body
            raise

    def _change(self, lease_id: str, body: Mapping[str, Any], if_match: str | None) -> Lease:
        headers = {"If-Match": if_match} if if_match else {}
        try:
            answer = self._transport.send("PATCH", _path(lease_id), body=body, headers=headers)
        except NotEnoughResources as refusal:
            refusal.request, refusal.lease_id = body, lease_id
            raise
        return _with_etag(answer)

    def _dry_run(self, lease_id: str | None, body: Mapping[str, Any]) -> DryRun:
        method, path = ("POST", _PATH) if lease_id is None else ("PATCH", _path(lease_id))
        try:
            answer = self._transport.send(method, path, query={"dry_run": True}, body=body)
        except NotEnoughResources as refusal:
            refusal.request, refusal.lease_id = body, lease_id
            raise
        return convert(answer.body, DryRun)


class Offers:
    """The offers of the caller's project. All methods raise the errors of ``Transport.send``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        name: str,
        *,
        hold: timedelta | int | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[LeaseOptions],
    ) -> Offer:
        """Create an offer, which holds the capacity of a lease for the time ``hold``.

        The default of ``hold`` is the longest time that the service allows. The request is repeated
        safely if the connection breaks. Raises NotEnoughResources, LimitExceeded, InvalidRequest.
        """
        return self._create(_held(_request(name, options), hold), idempotency_key)

    def take(
        self,
        refusal: NotEnoughResources,
        number: int,
        *,
        hold: timedelta | int | None = None,
        idempotency_key: str | None = None,
    ) -> Offer:
        """Hold alternative ``number`` (from 1) of a refused lease or offer.

        Raises NoSuchAlternative if there is no such alternative, or if the refused request was one
        to change a lease.
        """
        if refusal.lease_id is not None:
            raise reservations.NoSuchAlternative("An offer cannot hold the change of a lease.")
        body = reservations.alternative_request(refusal, number)
        return self._create(_held(body, hold), idempotency_key)

    def list(self, *, all_projects: bool = False) -> Iterator[Offer]:
        """Yield the open offers of the project, the first to expire first."""
        wanted = {"all_projects": True} if all_projects else {}
        return self._transport.pages(_OFFERS, "offers", Offer, wanted)

    def get(self, offer_id: str) -> Offer:
        """Return an open offer. Raises NotFound, OfferExpired."""
        return self._transport.get(_offer_path(offer_id), Offer)

    def accept(
        self, offer_id: str, *, name: str | None = None, idempotency_key: str | None = None
    ) -> Lease:
        """Accept an offer, and return the lease, which has the same id.

        The request is repeated safely if the connection breaks. Raises OfferExpired, NotFound.
        """
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        body = {} if name is None else {"name": name}
        path = f"{_offer_path(offer_id)}/accept"
        return _with_etag(self._transport.send("POST", path, body=body, headers=headers))

    def delete(self, offer_id: str) -> None:
        """Delete an open offer: its capacity is free at once. Raises NotFound, OfferExpired."""
        self._transport.send("DELETE", _offer_path(offer_id))

    def _create(self, body: Mapping[str, Any], key: str | None) -> Offer:
        headers = {"Idempotency-Key": key or str(uuid.uuid4())}
        try:
            answer = self._transport.send("POST", _OFFERS, body=body, headers=headers)
        except NotEnoughResources as refusal:
            refusal.request = body
            raise
        return convert(answer.body, Offer)


def _offer_path(offer_id: str) -> str:
    return f"{_OFFERS}/{segment(offer_id)}"


def _held(body: dict[str, Any], hold: timedelta | int | None) -> dict[str, Any]:
    if hold is None:
        return body
    seconds = int(hold.total_seconds()) if isinstance(hold, timedelta) else hold
    return {**body, "hold": seconds}


def _path(lease_id: str) -> str:
    return f"{_PATH}/{segment(lease_id)}"


def _with_etag(answer: Answer) -> Lease:
    lease = convert(answer.body, Lease)
    return msgspec.structs.replace(lease, etag=answer.headers.get("ETag", ""))


def _request(name: str, options: LeaseOptions) -> dict[str, Any]:
    return {"name": name, "start": "now", **_encoded(options)}


def _encoded(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as a body: times as text, durations in seconds, without None."""
    body = {name: value for name, value in options.items() if value is not None}
    for name in ("start", "end", "end_by", "before_end"):
        if name in body:
            body[name] = moment(body[name])
    if "events" in body:
        body["events"] = [{**event, "at": moment(event["at"])} for event in body["events"]]
    if (wait := body.get("wait")) is not None:
        body["wait"] = {k: moment(v) if k == "until" else v for k, v in wait.items()}
    duration = body.get("duration")
    if isinstance(duration, timedelta):
        body["duration"] = int(duration.total_seconds())
    return body


def _is_id(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
