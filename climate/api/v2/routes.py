"""The table of all v2 routes. The OpenAPI document is generated from the same rows."""

from datetime import date
from functools import lru_cache
from typing import Any

from flask import request
from marshmallow import Schema

from climate.api import discovery
from climate.api.call import Answer, Api
from climate.api.errors import pages as error_pages
from climate.api.route import Route
from climate.api.v2 import me
from climate.api.v2.capacity import availability, calendar, calendar_schemas, utilisation
from climate.api.v2.capacity import schemas as capacity_schemas
from climate.api.v2.documentation import page
from climate.api.v2.documentation.examples import examples
from climate.api.v2.feeds import schemas as feed_schemas
from climate.api.v2.feeds import views as feed_views
from climate.api.v2.http import openapi
from climate.api.v2.leases import (
    dry_run,
    history,
    lease_resources,
    limits,
    manual_start,
    schemas,
    wait_list,
)
from climate.api.v2.leases import views as lease_views
from climate.api.v2.notifications import schemas as notification_schemas
from climate.api.v2.notifications import subscriptions
from climate.api.v2.notifications import views as notification_views
from climate.api.v2.offers import schemas as offer_schemas
from climate.api.v2.offers import views as offer_views
from climate.api.v2.operations import managers, overdue_events
from climate.api.v2.provisioning import readiness, tasks
from climate.api.v2.provisioning import schemas as provisioning_schemas
from climate.api.v2.resources import resource_types
from climate.api.v2.resources import schemas as resource_schemas
from climate.api.v2.resources import stats as resource_stats
from climate.api.v2.resources import views as resource_views
from climate.core.errors import (
    Conflict,
    EnforcementUnavailable,
    IdempotencyKeyReused,
    InvalidInput,
    NotFound,
    NotificationsRemoved,
    OfferExpired,
    PreconditionFailed,
    RequestUnderWay,
    SelectionFilterFailed,
    TooManyConfirmations,
    TooManyFollowers,
)


def document(api: Api) -> Answer:
    """Return the OpenAPI 3.1 document of the v2 API in JSON."""
    return _described(api), 200


def _described(api: Api) -> dict[str, Any]:
    params = tuple((name, plugin.schema) for name, plugin in sorted(api.runtime.plugins.items()))
    return _document(params, request.root_path, api.runtime.clock.now().date())


@lru_cache(maxsize=4)
def _document(
    params: tuple[tuple[str, type[Schema]], ...], root: str, today: date
) -> dict[str, Any]:
    return openapi.document(ROUTES, dict(params), examples(today), root)


_RESERVATION = "/v2/leases/<lease_id>/reservations/<reservation_id>"
_SUBSCRIPTION = "/v2/subscriptions/<subscription_id>"

# One row per route: its request, its responses, and the errors that do not follow from those.
# fmt: off
ROUTES = [
    Route("GET", "/v2", discovery.version_2, answers={200: "application/json"}),
    Route("GET", "/v2/", discovery.version_2, answers={200: "application/json"}),
    Route("GET", "/v2/openapi.json", document, answers={200: "application/json"}),
    Route("GET", "/v2/docs", page.page, answers={200: "text/html"}),
    Route("GET", "/v2/docs/<name>", page.file, answers={200: "*/*", 304: None}),

    Route("GET", "/v2/errors/<code>", error_pages.show,
          answers={200: error_pages.ErrorPage}),

    Route("GET", "/v2/me", me.show, "me:get", answers={200: me.Me}),

    Route("GET", "/v2/leases", lease_views.index, "leases:get",
          query=schemas.LeaseQuery, answers={200: schemas.LeasePage}),
    Route("POST", "/v2/leases", lease_views.create, "leases:post",
          query=dry_run.DryRunQuery, body=schemas.LeaseRequest,
          answers={200: dry_run.DryRun, 201: schemas.Lease},
          request_headers=("Idempotency-Key",), response_headers=("ETag", "Location"),
          own_errors=(EnforcementUnavailable, SelectionFilterFailed, Conflict, RequestUnderWay,
                      IdempotencyKeyReused)),
    Route("GET", "/v2/leases/<lease_id>", lease_views.show, "leases:get",
          answers={200: schemas.Lease, 304: None},
          request_headers=("If-Match", "If-None-Match"), response_headers=("ETag",),
          own_errors=(PreconditionFailed,)),
    Route("PATCH", "/v2/leases/<lease_id>", lease_views.update, "leases:put",
          query=dry_run.DryRunQuery, body=schemas.LeaseChange,
          answers={200: (schemas.Lease, dry_run.DryRun)},
          request_headers=("If-Match",), response_headers=("ETag",),
          own_errors=(EnforcementUnavailable, SelectionFilterFailed, Conflict, PreconditionFailed)),
    Route("DELETE", "/v2/leases/<lease_id>", lease_views.delete, "leases:delete",
          answers={202: None, 204: None},
          request_headers=("If-Match",), own_errors=(PreconditionFailed,)),

    Route("GET", "/v2/leases/<lease_id>/resources", lease_resources.index, "leases:get",
          query=lease_resources.LeaseResourceQuery,
          answers={200: lease_resources.LeaseResourcePage}),
    Route("GET", "/v2/leases/<lease_id>/calendar.ics", feed_views.of_lease, "leases:get",
          answers={200: "text/calendar", 304: None},
          request_headers=("If-None-Match",), response_headers=("ETag",)),

    Route("POST", _RESERVATION + "/start", manual_start.start, "reservations:start",
          answers={202: schemas.Reservation}, own_errors=(Conflict,)),
    Route("POST", _RESERVATION + "/stop", manual_start.stop, "reservations:stop",
          answers={202: schemas.Reservation}, own_errors=(Conflict,)),

    Route("GET", "/v2/wait-list", wait_list.index, "wait_list:get",
          query=wait_list.WaitListQuery, answers={200: wait_list.WaitList}),

    Route("GET", "/v2/offers", offer_views.index, "leases:get",
          query=offer_schemas.OfferQuery, answers={200: offer_schemas.OfferPage}),
    Route("POST", "/v2/offers", offer_views.create, "leases:post",
          body=offer_schemas.OfferRequest, answers={201: offer_schemas.Offer},
          request_headers=("Idempotency-Key",), response_headers=("Location",),
          own_errors=(SelectionFilterFailed, Conflict, IdempotencyKeyReused)),
    Route("GET", "/v2/offers/<offer_id>", offer_views.show, "leases:get",
          answers={200: offer_schemas.Offer}, own_errors=(Conflict, OfferExpired)),
    Route("POST", "/v2/offers/<offer_id>/accept", offer_views.accept, "leases:post",
          body=offer_schemas.Acceptance, answers={201: schemas.Lease},
          request_headers=("Idempotency-Key",), response_headers=("ETag", "Location"),
          own_errors=(EnforcementUnavailable, Conflict, RequestUnderWay, IdempotencyKeyReused,
                      OfferExpired)),
    Route("DELETE", "/v2/offers/<offer_id>", offer_views.delete, "leases:delete",
          answers={204: None}, own_errors=(Conflict, OfferExpired)),

    Route("GET", "/v2/past-leases", history.index, "leases:get",
          query=history.PastLeaseQuery, answers={200: history.PastLeasePage}),

    Route("GET", "/v2/resources", resource_views.index, "resources:get",
          query=resource_schemas.ResourceQuery,
          answers={200: (resource_schemas.ResourcePage, resource_schemas.BookedResourcePage)}),
    Route("POST", "/v2/resources", resource_views.create, "resources:post",
          body=resource_schemas.ResourceRequest, answers={201: resource_schemas.Resource},
          response_headers=("ETag", "Location"), own_errors=(NotFound, Conflict)),
    Route("POST", "/v2/resources/stats", resource_stats.push, "resources:put_stats",
          body=resource_stats.StatsRequest, answers={200: resource_stats.StatsResults}),
    Route("GET", "/v2/resources/<resource_id>", resource_views.show, "resources:get",
          answers={200: resource_schemas.Resource, 304: None},
          request_headers=("If-Match", "If-None-Match"), response_headers=("ETag",),
          own_errors=(PreconditionFailed,)),
    Route("PATCH", "/v2/resources/<resource_id>", resource_views.update, "resources:put",
          body=resource_schemas.ResourceChange, answers={200: resource_schemas.Resource},
          request_headers=("If-Match",), response_headers=("ETag",),
          own_errors=(Conflict, PreconditionFailed)),
    Route("GET", "/v2/resources/<resource_id>/bookings", resource_views.bookings,
          "resources:get_bookings", query=resource_schemas.BookingQuery,
          answers={200: resource_schemas.BookingPage}),
    Route("DELETE", "/v2/resources/<resource_id>", resource_views.delete, "resources:delete",
          answers={204: None}, own_errors=(InvalidInput, Conflict)),

    Route("GET", "/v2/resource-types", resource_types.index, "plugins:get",
          answers={200: [resource_types.ResourceType]}),
    Route("GET", "/v2/resource-types/<name>/properties", resource_types.properties,
          "resources:get", answers={200: resource_types.Properties}),

    Route("GET", "/v2/availability", availability.show, "availability:get",
          query=capacity_schemas.AvailabilityQuery, answers={200: capacity_schemas.Availability},
          own_errors=(SelectionFilterFailed,)),
    Route("POST", "/v2/availability/search", availability.search, "availability:get",
          body=capacity_schemas.WindowSearch, answers={200: capacity_schemas.FreeWindows},
          own_errors=(SelectionFilterFailed,)),
    Route("GET", "/v2/calendar", calendar.index, "calendar:get",
          query=calendar_schemas.CalendarQuery,
          answers={200: calendar_schemas.Calendar, 304: None},
          request_headers=("If-None-Match",), response_headers=("ETag",)),
    Route("GET", "/v2/calendar/changes", calendar.changes, "calendar:get",
          query=calendar_schemas.ChangesQuery, answers={200: calendar_schemas.Changes},
          own_errors=(TooManyFollowers,)),
    Route("GET", "/v2/utilisation", utilisation.index, "utilisation:get",
          query=utilisation.Query, answers={200: utilisation.Utilisation}),
    Route("GET", "/v2/limits", limits.show_limits, "limits:get", query=limits.LimitsQuery,
          answers={200: (limits.Limits, limits.LimitsWithLeases)}),

    Route("GET", "/v2/notifications", notification_views.index, "notifications:get",
          query=notification_schemas.NotificationQuery,
          answers={200: notification_schemas.NotificationPage},
          own_errors=(NotificationsRemoved, TooManyFollowers)),
    Route("GET", "/v2/notifications/stream", notification_views.stream, "notifications:get",
          query=notification_schemas.FilterQuery, answers={200: "text/event-stream"},
          request_headers=("Last-Event-ID",), own_errors=(NotificationsRemoved, TooManyFollowers)),

    Route("GET", "/v2/subscriptions", subscriptions.index, "subscriptions:get",
          query=notification_schemas.SubscriptionQuery,
          answers={200: notification_schemas.SubscriptionPage}),
    Route("POST", "/v2/subscriptions", subscriptions.create, "subscriptions:post",
          body=notification_schemas.SubscriptionRequest,
          answers={201: notification_schemas.Subscription},
          response_headers=("Location",),
          own_errors=(NotificationsRemoved, TooManyConfirmations)),
    Route("GET", _SUBSCRIPTION, subscriptions.show, "subscriptions:get",
          answers={200: notification_schemas.Subscription}),
    Route("PATCH", _SUBSCRIPTION, subscriptions.update, "subscriptions:put",
          body=notification_schemas.SubscriptionChange,
          answers={200: notification_schemas.Subscription},
          own_errors=(NotificationsRemoved, TooManyConfirmations)),
    Route("DELETE", _SUBSCRIPTION, subscriptions.delete, "subscriptions:delete",
          answers={204: None}),
    Route("GET", _SUBSCRIPTION + "/dead-letters", subscriptions.dead_letters, "subscriptions:get",
          query=notification_schemas.DeadLetterQuery,
          answers={200: notification_schemas.DeadLetterPage}),
    Route("POST", _SUBSCRIPTION + "/redeliver", subscriptions.redeliver, "subscriptions:put",
          body=notification_schemas.Redelivery, answers={202: notification_schemas.Redelivering},
          own_errors=(Conflict,)),

    Route("GET", "/v2/feeds", feed_views.index, "feeds:get",
          query=feed_schemas.FeedQuery, answers={200: feed_schemas.FeedPage}),
    Route("POST", "/v2/feeds", feed_views.create, "feeds:post",
          body=feed_schemas.FeedRequest, answers={201: feed_schemas.CreatedFeed},
          own_errors=(NotFound,)),
    Route("DELETE", "/v2/feeds/<feed_id>", feed_views.delete, "feeds:delete", answers={204: None}),

    Route("GET", "/v2/preparations", tasks.list_preparations, "preparations:get",
          query=provisioning_schemas.PreparationQuery,
          answers={200: provisioning_schemas.PreparationPage}, own_errors=(TooManyFollowers,)),
    Route("GET", "/v2/preparations/<preparation_id>", tasks.show_preparation, "preparations:get",
          answers={200: provisioning_schemas.Preparation}),
    Route("POST", "/v2/preparations/<preparation_id>/report", tasks.report_preparation,
          "preparations:report", body=provisioning_schemas.Report,
          answers={200: provisioning_schemas.Preparation}, own_errors=(Conflict,)),
    Route("GET", "/v2/shutdowns", tasks.list_shutdowns, "shutdowns:get",
          query=provisioning_schemas.ShutdownQuery,
          answers={200: provisioning_schemas.ShutdownPage}),
    Route("GET", "/v2/shutdowns/<shutdown_id>", tasks.show_shutdown, "shutdowns:get",
          answers={200: provisioning_schemas.Shutdown}),
    Route("POST", "/v2/shutdowns/<shutdown_id>/report", tasks.report_shutdown, "shutdowns:report",
          body=provisioning_schemas.ShutdownReport, answers={200: provisioning_schemas.Shutdown},
          own_errors=(Conflict,)),

    Route("GET", "/v2/managers", managers.index, "managers:get", answers={200: managers.Managers}),
    Route("GET", "/v2/overdue-events", overdue_events.index, "events:get",
          query=overdue_events.OverdueQuery, answers={200: overdue_events.OverduePage}),

    Route("GET", "/v2/readiness/energy", readiness.saved, "readiness:get",
          query=provisioning_schemas.SummaryQuery, answers={200: provisioning_schemas.Energy}),
    Route("GET", "/v2/readiness", readiness.summary, "readiness:get",
          query=provisioning_schemas.SummaryQuery, answers={200: provisioning_schemas.Summary}),
    Route("GET", "/v2/leases/<lease_id>/readiness", readiness.of_lease, "leases:get",
          answers={200: provisioning_schemas.LeaseReadiness}),
    Route("GET", "/v2/resources/<resource_id>/readiness", readiness.of_host, "readiness:get",
          answers={200: provisioning_schemas.HostReadiness}),
    Route("PATCH", "/v2/resources/<resource_id>/readiness", readiness.change_host, "readiness:put",
          body=provisioning_schemas.HostChange, answers={200: provisioning_schemas.HostReadiness}),
]
# fmt: on
