"""The errors that the client raises.

``Refused`` and its subclasses are answers of the service: problem documents (RFC 9457), whose
members are attributes. All other errors mean that there was no usable answer, or that waiting for a
lease failed.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from msgspec import Struct, ValidationError, convert

_T = TypeVar("_T", bound=Struct)


class ClientError(Exception):
    """The base class of all errors of the client. Its text is a sentence for people."""


class NotConfigured(ClientError):
    """Nothing says where the service is, or how to sign in."""


class SignInFailed(ClientError):
    """Keystone rejected the credentials, or did not answer."""


class KeystoneUnreachable(SignInFailed):
    """Keystone did not answer; signing in may succeed later."""


class ServiceUnreachable(ClientError):
    """The service at ``url`` did not answer. The request may or may not have been carried out."""

    def __init__(self, message: str, url: str) -> None:
        super().__init__(message)
        self.url = url


class TlsFailed(ServiceUnreachable):
    """There is no TLS connection: a wrong certificate, or a service that speaks plain HTTP."""


class UnexpectedAnswer(ClientError):
    """The answer did not come from climate's API v2, or has a form that this client cannot read."""


class WaitFailed(ClientError):
    """The lease cannot reach the status that the caller waits for."""


class WaitTimedOut(ClientError, TimeoutError):
    """The lease did not reach the status within the time limit."""


class BadValue(Struct, frozen=True, kw_only=True):
    """An invalid value in a request: why it is invalid, and where it is.

    ``pointer`` is a JSON pointer into the body, such as ``#/reservations/0/params``. ``parameter``
    is a query parameter, ``header`` a header.
    """

    detail: str
    pointer: str | None = None
    parameter: str | None = None
    header: str | None = None


class Blocker(Struct, frozen=True, kw_only=True):
    """A booking that is in the way; it has a name only if it is of the caller's own project."""

    start: datetime
    end: datetime
    lease_id: str | None = None
    lease_name: str | None = None


class Alternative(Struct, frozen=True, kw_only=True):
    """A lease, similar to the rejected one, that climate would have admitted at that moment.

    ``differs`` is ``later``, ``shorter``, ``fewer`` (with ``amount`` units) or ``other`` (without
    the property expressions).
    """

    differs: str
    start: datetime
    end: datetime
    amount: int


class Refused(ClientError):
    """The service rejected the request.

    ``code`` is stable and for programs, ``detail`` a sentence for people. ``members`` has all
    members of the problem document, those of later releases included. ``request_id`` identifies the
    request in the log of the service.
    """

    #: The error codes, and the HTTP statuses, of which this is the class.
    codes: ClassVar[tuple[str, ...]] = ()
    statuses: ClassVar[tuple[int, ...]] = ()

    def __init__(
        self, status: int, members: Mapping[str, Any], request_id: str | None = None
    ) -> None:
        self.status = status
        self.members = members
        self.code = str(members.get("code", "error"))
        self.title = str(members.get("title", ""))
        self.detail = str(members.get("detail") or self.title or f"The service answers {status}.")
        self.request_id = request_id
        super().__init__(self.detail)

    @property
    def errors(self) -> list[BadValue]:
        """The invalid values of the request."""
        return self._list("errors", BadValue)

    def _list(self, name: str, kind: type[_T]) -> list[_T]:
        try:
            return convert(self.members.get(name) or [], list[kind])  # type: ignore[valid-type]
        except ValidationError:  # the form of a later release: ``members`` has it
            return []


class InvalidRequest(Refused):
    """The request is malformed, or can never be satisfied (400, 413, 415, 422)."""

    statuses = (400, 413, 415, 422)


class Unauthenticated(Refused):
    """The service did not accept the token (401)."""

    statuses = (401,)


class Forbidden(Refused):
    """The policy does not allow the request (403)."""

    statuses = (403,)


class LimitExceeded(Forbidden):
    """The project or the user would exceed a limit."""

    codes = ("limit_exceeded",)


class NotFound(Refused):
    """The object does not exist, or the caller may not see it (404)."""

    statuses = (404,)


class Conflict(Refused):
    """The request is valid, but the present state does not allow it (409)."""

    statuses = (409,)


class NotEnoughResources(Conflict):
    """Fewer matching resources are free than the request needs.

    ``request`` is the body that climate rejected, and ``lease_id`` the lease that it would have
    changed (None: a new lease). ``leases.accept`` sends the request of an alternative.
    """

    codes = ("not_enough_resources",)

    request: Mapping[str, Any] = MappingProxyType({})
    lease_id: str | None = None

    @property
    def reservation(self) -> int | None:
        """The index of the reservation that lacks resources; None: each would fit alone."""
        return self.members.get("reservation")

    @property
    def asked(self) -> float | None:
        """The units (hosts, instances and so on) that the reservation needs at least."""
        return self.members.get("asked")

    @property
    def matching(self) -> int | None:
        """How many resources match the reservation and are large enough."""
        return self.members.get("matching")

    @property
    def free(self) -> int | None:
        """How many units are free during the whole window."""
        return self.members.get("free")

    @property
    def missing(self) -> int | None:
        """How many units are missing."""
        return self.members.get("missing")

    @property
    def can_wait(self) -> bool:
        """Whether the lease can wait for capacity, with ``start="asap"`` and ``wait={}``."""
        return self.members.get("can_wait") is True

    @property
    def blocked_by(self) -> list[Blocker]:
        """Some bookings that are in the way, those of the caller's project first."""
        return self._list("blocked_by", Blocker)

    @property
    def alternatives(self) -> list[Alternative]:
        """Similar leases that climate would have admitted at that moment."""
        return self._list("alternatives", Alternative)


class NotificationsRemoved(Refused):
    """The next notifications were removed, because they were too old (410)."""

    statuses = (410,)

    @property
    def oldest(self) -> int | None:
        """The number of the oldest notification that the service still has."""
        return self.members.get("oldest")


class OfferExpired(Refused):
    """The offer has expired, and others can book its resources (410)."""

    codes = ("offer_expired",)


class Changed(Refused):
    """The object has changed since the caller read it (412)."""

    statuses = (412,)

    @property
    def etag(self) -> str | None:
        """The present ETag of the object."""
        return self.members.get("etag")


class TemporarilyUnavailable(Refused):
    """The service cannot answer now, and the same request may succeed later (429, 502 to 504)."""

    statuses = (429, 502, 503, 504)


def refusal(status: int, members: Mapping[str, Any], request_id: str | None) -> Refused:
    """Return the error for a problem document: its class depends on the code, then the status."""
    code = members.get("code")
    kinds = list(_kinds(Refused))
    by_code = (kind for kind in kinds if code in kind.codes)
    by_status = (kind for kind in kinds if status in kind.statuses)
    kind = next(by_code, None) or next(by_status, Refused)
    return kind(status, members, request_id)


def _kinds(base: type[Refused]) -> Iterator[type[Refused]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)
