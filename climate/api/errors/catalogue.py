"""The table of all error codes: what each one means, and what the client can do.

The answers of v2, the pages ``/v2/errors/<code>`` and ``docs/reference/errors.md`` take their
texts from it.
Code spans in the texts are between backticks.
"""

from collections.abc import Mapping
from typing import NamedTuple


class ErrorCode(NamedTuple):
    """What an error code means.

    ``status`` is the HTTP status of the code. ``title`` is a short summary, the same for each
    occurrence. ``remedy`` says what a client can do.
    """

    status: int
    title: str
    meaning: str
    remedy: str


_CONFIGURED = "Ask the operator of the service."
_WAIT = "Send the request again after the seconds in the header `Retry-After`."
_REPORTED = (
    "Read the preparation or the shutdown again. If another provisioner has claimed it, do not"
    " touch the host."
)
_OTHER_SITE = (
    "Send the request from the web console or from a program, not from a page of another site."
)

CODES: Mapping[str, ErrorCode] = {
    "invalid_input": ErrorCode(
        400,
        "Invalid request",
        "The request is malformed, or requests something that can never be. `errors` names each"
        " invalid value: a JSON pointer into the body, a query parameter, or a header.",
        "Correct the values that `errors` names. `/v2/docs` describes every route with its"
        " parameters and has examples.",
    ),
    "missing_parameter": ErrorCode(
        400,
        "Missing parameter",
        "A required parameter is absent.",
        "Send the parameter that the message names.",
    ),
    "session_too_large": ErrorCode(
        400,
        "Session too large",
        "The session of the web console does not fit into a cookie, because names are too long or"
        " Keystone issues very large tokens.",
        f"Sign in with an application credential, or use a token. {_CONFIGURED}",
    ),
    "invalid_date": ErrorCode(
        400,
        "Invalid date",
        "A date is malformed, has no time zone, lies in the past or is out of order, or a span is"
        " longer than the service allows.",
        "Send times in ISO 8601 with a time zone, such as `2030-01-15T12:00:00Z`. In a query"
        " string, write `+` as `%2B`.",
    ),
    "invalid_query": ErrorCode(
        400,
        "Invalid property expression",
        "A property expression is malformed or too long, or names an unknown property.",
        'Send JSON, such as `[">=", "$vcpus", "4"]`. `GET /v2/resource-types/<name>/properties`'
        " lists the properties of a resource type.",
    ),
    "ipv6_not_supported": ErrorCode(
        400,
        "IPv6 not supported",
        "The request names an IPv6 address as a floating IP. Neutron creates floating IPs only with"
        " IPv4 addresses.",
        "Name an IPv4 address. For IPv6, create an IPv6 subnet in a network of your project, such"
        " as a reserved one (`virtual:network`): servers get its addresses without floating IPs.",
    ),
    "search_too_long": ErrorCode(
        400,
        "Search took too long",
        "The search for free windows took longer than `[api] search_timeout`.",
        "Search for fewer reservations, with shorter property expressions, or in a shorter span.",
    ),
    "unsupported_resource_type": ErrorCode(
        400,
        "Unsupported resource type",
        "The service has no such resource type.",
        "`GET /v2/resource-types` lists the resource types of this service.",
    ),
    "invalid_version": ErrorCode(
        400,
        "Invalid microversion",
        "The header `OpenStack-API-Version` names this service, but not a version.",
        "Send `OpenStack-API-Version: reservation 1.0`, or no such header.",
    ),
    "not_provisioned": ErrorCode(
        400,
        "Hosts are not prepared",
        "The lease has `start_when: ready`, but no provisioner prepares hosts in this service, or"
        " the lease has no hosts.",
        "Send `start_when: scheduled`.",
    ),
    "unauthenticated": ErrorCode(
        401,
        "Not authenticated",
        "The request carries no usable token or session.",
        "Send a valid token in the header `X-Auth-Token`, or sign in to the web console.",
    ),
    "sign_in_failed": ErrorCode(
        401,
        "Sign-in failed",
        "Keystone did not accept the credentials.",
        "Check the user, the domain, the project and the password.",
    ),
    "forbidden": ErrorCode(
        403,
        "Forbidden",
        "The caller is known, but the policy does not allow this. The message names the policy rule"
        " and who satisfies it.",
        "`GET /v2/me` lists your roles and what you may do. Use a project in which you have the"
        " role, or ask an administrator.",
    ),
    "limit_exceeded": ErrorCode(
        403,
        "Limit exceeded",
        "The project or the user would exceed a limit. The message says which limit, how much is"
        " allowed, and how much is in use.",
        "Request less, or end other leases. `GET /v2/limits` shows your limits and their use.",
    ),
    "enforcement_denied": ErrorCode(
        403,
        "Denied by the enforcement service",
        "The operator's enforcement service rejected the lease. The message is its own.",
        _CONFIGURED,
    ),
    "foreign_origin": ErrorCode(
        403,
        "Foreign origin",
        "The service has no authentication (`noauth`), and a page of another site may have sent"
        " the request, or the header `Host` names another machine.",
        f"{_OTHER_SITE} Address the service as `localhost` or by its configured host.",
    ),
    "cross_site_request": ErrorCode(
        403,
        "Cross-site request",
        "A page of another site may have sent this request with the session of the user.",
        _OTHER_SITE,
    ),
    "not_found": ErrorCode(
        404,
        "Not found",
        "There is no such path or object, or the caller may not know of it.",
        "Check the path, the id and the project. Paths have no slash at the end.",
    ),
    "method_not_allowed": ErrorCode(
        405,
        "Method not allowed",
        "The path exists, but not with this method.",
        "Use a method in the header `Allow`.",
    ),
    "unsupported_version": ErrorCode(
        406,
        "Unsupported microversion",
        "The service does not have the requested microversion.",
        "Send `OpenStack-API-Version: reservation 1.0`, or no such header.",
    ),
    "conflict": ErrorCode(
        409,
        "Conflict",
        "The request is valid, but the present state does not allow it.",
        "Read the object again. The message says what prevents the change.",
    ),
    "not_enough_resources": ErrorCode(
        409,
        "Not enough resources",
        "Fewer resources match and are free than the request needs. `free` and `missing` count"
        " them, `blocked_by` lists bookings in the way, and `alternatives` has leases that would be"
        " admitted now.",
        "Request one of the alternatives, fewer resources or other times. `POST /v2/offers` holds"
        " an alternative for some minutes. If `can_wait` is true, the lease can wait for capacity:"
        " send `wait`, `duration` and the start `asap`."
        " `POST /v2/availability/search` finds windows in which the reservations fit.",
    ),
    "resources_in_use": ErrorCode(
        409,
        "Resources in use",
        "A running reservation cannot give back the resources that the change would remove.",
        "Delete the servers on the hosts that you give back, end the lease earlier, or keep the"
        " size of the reservation.",
    ),
    "lease_busy": ErrorCode(
        409,
        "Lease busy",
        "The lease is being started, ended or deleted, or another request changed it just now.",
        "Read the lease until its status is stable, then send the request again.",
    ),
    "lease_not_running": ErrorCode(
        409,
        "Lease not running",
        "The lease has not begun, has ended or has failed, so its reservations cannot be started or"
        " stopped.",
        "Send the request between the start and the end of the lease, while it is ACTIVE.",
    ),
    "not_manual": ErrorCode(
        409,
        "Not manual",
        "Only reservations with `on_start: manual` can be started and stopped.",
        "Create the reservation with `on_start: manual`, or change `on_start`. For a part of a"
        " stack, start or stop the reservation of the stack.",
    ),
    "reservation_stopping": ErrorCode(
        409,
        "Reservation stopping",
        "The reservation is being stopped, so it cannot be started yet.",
        "Read the lease until the `run_state` of the reservation is `stopped`, then start it.",
    ),
    "invalid_transition": ErrorCode(
        409,
        "Invalid transition",
        "The present state of the object does not allow the requested next state.",
        "Read the object again, and report what its state allows.",
    ),
    "preparation_over": ErrorCode(
        409,
        "Preparation over",
        "No lease needs the host of this preparation any more.",
        "Stop working on the preparation.",
    ),
    "preparation_claimed": ErrorCode(
        409,
        "Preparation claimed",
        "Another provisioner has claimed the preparation, or the caller never claimed it.",
        _REPORTED,
    ),
    "shutdown_over": ErrorCode(
        409,
        "Shutdown over",
        "The host of this shutdown stays on, or has power again.",
        "Stop working on the shutdown.",
    ),
    "shutdown_claimed": ErrorCode(
        409,
        "Shutdown claimed",
        "Another provisioner has claimed the shutdown, or the caller never claimed it.",
        _REPORTED,
    ),
    "request_under_way": ErrorCode(
        409,
        "Request under way",
        "The same request, by its `Idempotency-Key`, was sent before and is not decided yet.",
        "Send the request again shortly, with the same key.",
    ),
    "notifications_removed": ErrorCode(
        410,
        "Notifications removed",
        "Notifications after that number were removed, because they were too old. `oldest` is the"
        " number of the first that is kept.",
        "Read the objects that you follow again, then continue with `oldest` minus 1.",
    ),
    "offer_expired": ErrorCode(
        410,
        "Offer expired",
        "The offer was not accepted in time. It no longer holds capacity, and others can book it.",
        "Create a new offer with `POST /v2/offers`, or request the lease at once. To have more"
        " time, send `hold`, the seconds for which the offer holds capacity.",
    ),
    "precondition_failed": ErrorCode(
        412,
        "Precondition failed",
        "The object has changed since you read it: the header `If-Match` does not have the present"
        " `etag`.",
        "Read the object again, decide again, and send the new ETag.",
    ),
    "content_too_large": ErrorCode(
        413,
        "Content too large",
        "The body is larger than 1 MiB.",
        "Split the request.",
    ),
    "unsupported_media_type": ErrorCode(
        415,
        "Unsupported media type",
        "The header `Content-Type` says that the body is not JSON.",
        "Send JSON with `Content-Type: application/json`. With curl, use `--json` instead of `-d`.",
    ),
    "idempotency_key_reused": ErrorCode(
        422,
        "Idempotency key reused",
        "The `Idempotency-Key` belongs to another request of yours, with another body.",
        "Send a new key with each new request.",
    ),
    "too_many_sign_ins": ErrorCode(
        429,
        "Too many sign-ins",
        "Too many sign-ins have failed, or are in progress.",
        _WAIT,
    ),
    "too_many_confirmations": ErrorCode(
        429,
        "Too many confirmations",
        "climate has sent as many confirmations to an e-mail address, or for a project, as it may"
        " in an hour.",
        "Look for the mails that were sent before, and wait an hour.",
    ),
    "sign_in_unavailable": ErrorCode(
        503,
        "Sign-in unavailable",
        "Users cannot sign in because the operator has not set `[console] session_key_file`.",
        _CONFIGURED,
    ),
    "contention": ErrorCode(
        503,
        "Contention",
        "Other requests kept the same objects locked during all retries. Nothing was changed.",
        _WAIT,
    ),
    "too_many_followers": ErrorCode(
        503,
        "Too many followers",
        "All places for waiting requests of this process are taken, or the share of your project.",
        f"{_WAIT} A webhook needs no such place.",
    ),
    "backend_unavailable": ErrorCode(
        503,
        "Database unavailable",
        "The database does not answer. It is unknown whether a change was stored.",
        "Check whether your change was made before you send it again, or use an `Idempotency-Key`.",
    ),
    "identity_unavailable": ErrorCode(
        503,
        "Identity service unavailable",
        "Keystone does not answer, so the token could not be checked. Nothing was changed.",
        _WAIT,
    ),
    "enforcement_unavailable": ErrorCode(
        503,
        "Enforcement service unavailable",
        "The operator's enforcement service gave no usable answer. Nothing was changed.",
        _WAIT,
    ),
    "selection_filter_failed": ErrorCode(
        503,
        "Selection filter failed",
        "A filter of Nova that the operator has configured failed while it examined hosts for the"
        " request. `filter` names the filter. Nothing was changed.",
        f"Send the request again later. {_CONFIGURED}",
    ),
    "error": ErrorCode(
        500,
        "Internal error",
        "The service has a defect. Its log has the details, with the id in the header"
        " `X-Openstack-Request-Id`.",
        "Report the defect to the operator with this id.",
    ),
}
