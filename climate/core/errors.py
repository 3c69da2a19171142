"""All errors that climate reports to callers, and the base class of those for operators.

Each class of errors for callers has a stable ``code`` for programs, and an HTTP ``status``, by
default that of its base class. The code that raises an error supplies the message for people. Any
other exception is a defect in climate: the API answers 500 without details.
"""

from collections.abc import Mapping
from typing import Any


class ClimateError(Exception):
    """The base class of all errors that a caller can act on."""

    code = "error"
    status = 500

    def __init_subclass__(cls, *, code: str | None = None, status: int | None = None) -> None:
        super().__init_subclass__()
        cls.code, cls.status = code or cls.code, status or cls.status

    def __init__(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        """Store ``message`` for people and ``details`` for programs.

        The values in ``details`` must be JSON values.
        """
        super().__init__(message)
        self.message = message
        self.details = dict(details or {})


class OperatorError(RuntimeError):
    """The base class of errors that stop a program, and whose cause the operator can repair.

    The program prints the message, which says what to repair, without a stack trace.
    """


class InvalidInput(ClimateError, code="invalid_input", status=400):
    """The request is malformed or can never be satisfied.

    ``place`` is the path of the invalid value in the data that raised the error, such as
    ``("resource_properties",)``. It is empty if the whole of the data is invalid.
    """

    place: tuple[str, ...] = ()


class MissingParameter(InvalidInput, code="missing_parameter"):
    """A required parameter is absent."""


class SessionTooLarge(InvalidInput, code="session_too_large"):
    """The session of the web console does not fit into a cookie."""


class InvalidDate(InvalidInput, code="invalid_date"):
    """A date is malformed or out of order."""


class InvalidQuery(InvalidInput, code="invalid_query"):
    """A property expression is malformed, too long, or names an unknown property."""


class UnknownProperty(InvalidQuery):
    """A property expression names a property that no resource of ``resource_type`` has.

    ``resource_type`` is empty if the expression concerns several resource types.
    """

    name: str = ""
    resource_type: str = ""


class Ipv6NotSupported(InvalidInput, code="ipv6_not_supported"):
    """The request names an IPv6 address where only IPv4 is possible: as a floating IP."""


class SearchTooLong(InvalidInput, code="search_too_long"):
    """A search for free windows has reached its deadline."""


class UnsupportedResourceType(InvalidInput, code="unsupported_resource_type"):
    """No enabled plugin serves this resource type."""


class NotProvisioned(InvalidInput, code="not_provisioned"):
    """The request has ``start_when: ready``, but no provisioner prepares hosts in this service."""


class Unauthenticated(ClimateError, code="unauthenticated", status=401):
    """The request carries no usable identity."""


class SignInFailed(ClimateError, code="sign_in_failed", status=401):
    """Keystone did not accept the credentials of a user who signs in."""


class TooManySignIns(ClimateError, code="too_many_sign_ins", status=429):
    """Too many sign-ins have failed, or are in progress."""


class TooManyConfirmations(ClimateError, code="too_many_confirmations", status=429):
    """climate has sent as many confirmations to an e-mail address, or for a project, as allowed."""


class SignInUnavailable(ClimateError, code="sign_in_unavailable", status=503):
    """No user can sign in, because the operator has not configured keys for sessions."""


class Forbidden(ClimateError, code="forbidden", status=403):
    """The policy does not allow the caller to do this."""


class LimitExceeded(Forbidden, code="limit_exceeded"):
    """The project or user would exceed a limit; ``details`` names the limit."""


class EnforcementDenied(Forbidden, code="enforcement_denied"):
    """The operator's enforcement service rejected the lease."""


class ForeignOrigin(Forbidden, code="foreign_origin"):
    """A page of another site may have sent the request to a service without authentication.

    The user's browser can reach such a service, so any page that the user opens could command it.
    The error is raised if the header Origin names another site, or if the header Host does not name
    this service (DNS rebinding).
    """


class CrossSiteRequest(Forbidden, code="cross_site_request"):
    """A page of another site may have sent the request with a user's session cookie."""


class NotFound(ClimateError, code="not_found", status=404):
    """The named object does not exist, or the caller may not see it."""


class MethodNotAllowed(ClimateError, code="method_not_allowed", status=405):
    """The path exists, but not with this method."""


class UnsupportedVersion(ClimateError, code="unsupported_version", status=406):
    """climate does not support the requested microversion."""


class Conflict(ClimateError, code="conflict", status=409):
    """The request is valid, but the current state does not allow it."""


class NotEnoughResources(Conflict, code="not_enough_resources"):
    """Fewer matching resources are free than the request needs."""


class ResourcesInUse(Conflict, code="resources_in_use"):
    """The change would take resources from a running reservation that it must keep."""


class LeaseBusy(Conflict, code="lease_busy"):
    """The lease is starting, ending or being deleted, or another request changed it just now."""


class LeaseNotRunning(Conflict, code="lease_not_running"):
    """The request needs a running lease, but the lease has not begun, has ended, or has failed."""


class NotManual(Conflict, code="not_manual"):
    """Users cannot start or stop the reservation: its ``on_start`` is not ``manual``."""


class ReservationStopping(LeaseBusy, code="reservation_stopping"):
    """The reservation is being stopped, and can be started again after that."""


class InvalidTransition(Conflict, code="invalid_transition"):
    """The object's present state does not allow the requested next state."""


class NotificationsRemoved(ClimateError, code="notifications_removed", status=410):
    """Notifications that the client has not read yet were removed, because they were too old."""


class OfferExpired(ClimateError, code="offer_expired", status=410):
    """The offer has expired, and its capacity may have been booked by others."""


class PreparationOver(Conflict, code="preparation_over"):
    """The task to prepare a host is over, because no lease needs the host any more."""


class PreparationClaimed(Conflict, code="preparation_claimed"):
    """Another provisioner has claimed the preparation, or the caller has not claimed it."""


class ShutdownOver(Conflict, code="shutdown_over"):
    """The task to switch a host off is over, because the host is needed with power again."""


class ShutdownClaimed(Conflict, code="shutdown_claimed"):
    """Another provisioner has claimed the shutdown, or the caller has not claimed it."""


class PreconditionFailed(ClimateError, code="precondition_failed", status=412):
    """The object has changed since the caller read it."""


class ContentTooLarge(ClimateError, code="content_too_large", status=413):
    """The body is larger than any valid request."""


class UnsupportedMediaType(ClimateError, code="unsupported_media_type", status=415):
    """The Content-Type of the body is not JSON."""


class RequestUnderWay(ClimateError, code="request_under_way", status=409):
    """The same request was sent before and is still being processed."""


class IdempotencyKeyReused(ClimateError, code="idempotency_key_reused", status=422):
    """The idempotency key belongs to a different request."""


class Contention(ClimateError, code="contention", status=503):
    """Other requests kept the database rows locked during all retries; the client can try again."""


class TooManyFollowers(ClimateError, code="too_many_followers", status=503):
    """The process or the project already has its maximum of waiting requests (long polling)."""


class BackendUnavailable(ClimateError, code="backend_unavailable", status=503):
    """The database does not answer; it is unknown whether the change was stored."""


class IdentityUnavailable(ClimateError, code="identity_unavailable", status=503):
    """The identity service does not answer; nothing was changed."""


class EnforcementUnavailable(ClimateError, code="enforcement_unavailable", status=503):
    """The operator's enforcement service gave no usable answer; nothing was changed."""


class SelectionFilterFailed(ClimateError, code="selection_filter_failed", status=503):
    """A filter of Nova that the operator has configured failed; nothing was changed."""
