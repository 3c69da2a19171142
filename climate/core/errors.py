"""Every refusal climate can utter, in one table.

A class is a stable ``code`` (for programs), an HTTP ``status`` (both APIs map it in one place)
and a sentence (for people) that the raiser writes. Whatever is not a ClimateError is a defect of
ours and becomes a 500 without details.
"""

from collections.abc import Mapping
from typing import Any


class ClimateError(Exception):
    """A refusal with a reason; the base of all errors a caller can act on."""

    code = "error"
    status = 500

    def __init__(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        """Keep the sentence that is shown to the caller, and ``details`` for programs (JSON)."""
        super().__init__(message)
        self.message = message
        self.details = dict(details or {})


class InvalidInput(ClimateError):
    """The request is malformed or asks for something that can never be."""

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
    """A start is to wait for hosts, and nobody gets any ready."""

    code = "not_provisioned"


class Unauthenticated(ClimateError):
    """The request carries no usable identity."""

    code = "unauthenticated"
    status = 401


class Forbidden(ClimateError):
    """The identity is known and may not do this."""

    code = "forbidden"
    status = 403


class LimitExceeded(Forbidden):
    """The project or user would have more than it may; the details say of what."""

    code = "limit_exceeded"


class EnforcementDenied(Forbidden):
    """The operator's enforcement service said no."""

    code = "enforcement_denied"


class NotFound(ClimateError):
    """The thing named does not exist, or the caller may not know that it does."""

    code = "not_found"
    status = 404


class MethodNotAllowed(ClimateError):
    """The path is right, but cannot be used with this method."""

    code = "method_not_allowed"
    status = 405


class UnsupportedVersion(ClimateError):
    """The microversion asked for is not served."""

    code = "unsupported_version"
    status = 406


class Conflict(ClimateError):
    """The request is sound, but the present state does not allow it."""

    code = "conflict"
    status = 409


class NotEnoughResources(Conflict):
    """Fewer resources match and are free than the request needs."""

    code = "not_enough_resources"


class LeaseBusy(Conflict):
    """The lease is being started or ended right now."""

    code = "lease_busy"


class InvalidTransition(Conflict):
    """A state machine does not know this step."""

    code = "invalid_transition"


class NotificationsRemoved(ClimateError):
    """What comes after this number is not kept any more, or not all of it."""

    code = "notifications_removed"
    status = 410


class PreparationOver(Conflict):
    """Nobody needs the host any more that was to be got ready."""

    code = "preparation_over"


class PreparationClaimed(Conflict):
    """Somebody else is getting the host ready, or whoever reports never accepted to."""

    code = "preparation_claimed"


class ShutdownOver(Conflict):
    """The host that was to be switched off is to have power after all."""

    code = "shutdown_over"


class ShutdownClaimed(Conflict):
    """Somebody else is switching the host off, or whoever reports never accepted to."""

    code = "shutdown_claimed"


class PreconditionFailed(ClimateError):
    """What was to be changed is not any more what the caller saw."""

    code = "precondition_failed"
    status = 412


class ContentTooLarge(ClimateError):
    """The body is larger than any sound request."""

    code = "content_too_large"
    status = 413


class UnsupportedMediaType(ClimateError):
    """The body says that it is something else than JSON."""

    code = "unsupported_media_type"
    status = 415


class RequestUnderWay(ClimateError):
    """The same request was sent before, and is not decided yet."""

    code = "request_under_way"
    status = 409


class IdempotencyKeyReused(ClimateError):
    """The key stands for another request that was carried out before."""

    code = "idempotency_key_reused"
    status = 422


class Contention(ClimateError):
    """Others hold the resources locked for longer than we were willing to try."""

    code = "contention"
    status = 503


class TooManyFollowers(ClimateError):
    """As many as there is room for wait for notifications already."""

    code = "too_many_followers"
    status = 503


class BackendUnavailable(ClimateError):
    """The database does not answer; whether a change was made shows when it is back."""

    code = "backend_unavailable"
    status = 503


class IdentityUnavailable(ClimateError):
    """Whoever knows the callers does not answer; nothing was done."""

    code = "identity_unavailable"
    status = 503


class EnforcementUnavailable(ClimateError):
    """The operator's enforcement service gives no answer that can be used; nothing was done."""

    code = "enforcement_unavailable"
    status = 503
