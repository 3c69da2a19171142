"""All errors that climate reports to callers, in one table.

A class has a stable ``code`` for programs and an HTTP ``status``; the code that raises it writes
the message for people. Any other exception is a defect in climate and becomes a 500 without
details.
"""

from collections.abc import Mapping
from typing import Any


class ClimateError(Exception):
    """The base of all errors that a caller can act on."""

    code = "error"
    status = 500

    def __init__(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        """Keep the message for the caller, and ``details`` for programs (JSON)."""
        super().__init__(message)
        self.message = message
        self.details = dict(details or {})


class InvalidInput(ClimateError):
    """The request is malformed or can never be satisfied."""

    code = "invalid_input"
    status = 400


class MissingParameter(InvalidInput):
    """A required parameter is absent."""

    code = "missing_parameter"


class InvalidDate(InvalidInput):
    """A date is malformed or out of order."""

    code = "invalid_date"


class InvalidQuery(InvalidInput):
    """A property expression is malformed or names an unknown property."""

    code = "invalid_query"


class UnsupportedResourceType(InvalidInput):
    """No enabled plugin serves this resource type."""

    code = "unsupported_resource_type"


class NotProvisioned(InvalidInput):
    """The start should wait for hosts to be ready, but no provisioner prepares them."""

    code = "not_provisioned"


class Unauthenticated(ClimateError):
    """The request carries no usable identity."""

    code = "unauthenticated"
    status = 401


class Forbidden(ClimateError):
    """The policy does not allow the caller to do this."""

    code = "forbidden"
    status = 403


class LimitExceeded(Forbidden):
    """The project or user would exceed a limit; the details name it."""

    code = "limit_exceeded"


class EnforcementDenied(Forbidden):
    """The operator's enforcement service rejected the lease."""

    code = "enforcement_denied"


class NotFound(ClimateError):
    """The named object does not exist, or the caller may not see it."""

    code = "not_found"
    status = 404


class MethodNotAllowed(ClimateError):
    """The path exists, but not with this method."""

    code = "method_not_allowed"
    status = 405


class UnsupportedVersion(ClimateError):
    """climate does not support the requested microversion."""

    code = "unsupported_version"
    status = 406


class Conflict(ClimateError):
    """The request is valid, but the current state does not allow it."""

    code = "conflict"
    status = 409


class NotEnoughResources(Conflict):
    """Fewer matching resources are free than the request needs."""

    code = "not_enough_resources"


class LeaseBusy(Conflict):
    """The lease is being started or ended right now."""

    code = "lease_busy"


class InvalidTransition(Conflict):
    """The state machine has no such transition."""

    code = "invalid_transition"


class NotificationsRemoved(ClimateError):
    """Some notifications after the requested number were removed."""

    code = "notifications_removed"
    status = 410


class PreparationOver(Conflict):
    """No lease needs the host of this preparation any more."""

    code = "preparation_over"


class PreparationClaimed(Conflict):
    """Another provisioner has claimed the preparation, or the reporter did not claim it."""

    code = "preparation_claimed"


class ShutdownOver(Conflict):
    """The host of this shutdown must have power again."""

    code = "shutdown_over"


class ShutdownClaimed(Conflict):
    """Another provisioner has claimed the shutdown, or the reporter did not claim it."""

    code = "shutdown_claimed"


class PreconditionFailed(ClimateError):
    """The object has changed since the caller read it."""

    code = "precondition_failed"
    status = 412


class ContentTooLarge(ClimateError):
    """The body is larger than any valid request."""

    code = "content_too_large"
    status = 413


class UnsupportedMediaType(ClimateError):
    """The Content-Type of the body is not JSON."""

    code = "unsupported_media_type"
    status = 415


class RequestUnderWay(ClimateError):
    """The same request was sent before and is still being processed."""

    code = "request_under_way"
    status = 409


class IdempotencyKeyReused(ClimateError):
    """The idempotency key belongs to a different request."""

    code = "idempotency_key_reused"
    status = 422


class Contention(ClimateError):
    """Other requests kept the resources locked through all retries."""

    code = "contention"
    status = 503


class TooManyFollowers(ClimateError):
    """The maximum number of clients already waits for notifications."""

    code = "too_many_followers"
    status = 503


class BackendUnavailable(ClimateError):
    """The database does not answer; it is unknown whether the change was stored."""

    code = "backend_unavailable"
    status = 503


class IdentityUnavailable(ClimateError):
    """The identity service does not answer; nothing was changed."""

    code = "identity_unavailable"
    status = 503


class EnforcementUnavailable(ClimateError):
    """The operator's enforcement service gave no usable answer; nothing was changed."""

    code = "enforcement_unavailable"
    status = 503
