"""The routes of v2, each with what it takes, gives and refuses: served and documented from here."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from flask import render_template, request
from marshmallow import Schema

from climate.api import discovery
from climate.api.call import Answer, Api
from climate.api.v2 import preparation_routes
from climate.api.v2.capacity import availability, limits
from climate.api.v2.capacity import schemas as capacity_schemas
from climate.api.v2.http import openapi, queries
from climate.api.v2.http.openapi import Route
from climate.api.v2.leases import schemas
from climate.api.v2.leases import views as lease_views
from climate.api.v2.notifications import schemas as notification_schemas
from climate.api.v2.notifications import subscriptions
from climate.api.v2.notifications import views as notification_views
from climate.api.v2.resources import schemas as resource_schemas
from climate.api.v2.resources import views as resource_views
from climate.core.errors import (
    BackendUnavailable,
    Conflict,
    Contention,
    ContentTooLarge,
    EnforcementUnavailable,
    Forbidden,
    IdempotencyKeyReused,
    IdentityUnavailable,
    InvalidInput,
    NotFound,
    NotificationsRemoved,
    PreconditionFailed,
    RequestUnderWay,
    TooManyFollowers,
    Unauthenticated,
    UnsupportedMediaType,
)

_CALLER = (Unauthenticated, Forbidden, IdentityUnavailable, BackendUnavailable)
_BODY = (InvalidInput, ContentTooLarge, UnsupportedMediaType)
_MORE = (Contention, EnforcementUnavailable)
# Nothing is loaded from anywhere, and no script runs.
_PAGE_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


def document(api: Api) -> Answer:
    """Describe v2, for programs: OpenAPI 3.1."""
    return _described(_params(api), request.root_path), 200


def page(api: Api) -> Answer:
    """Describe v2, for people: the same document as a page."""
    described = _described(_params(api), request.root_path)
    return render_template("openapi.html", document=described), 200, _PAGE_HEADERS


def _params(api: Api) -> tuple[tuple[str, type[Schema]], ...]:
    """Return what can be asked of each resource type."""
    return tuple((name, plugin.schema) for name, plugin in sorted(api.runtime.plugins.items()))


@lru_cache(maxsize=4)
def _described(params: tuple[tuple[str, type[Schema]], ...], root: str) -> dict[str, Any]:
    return openapi.document(ROUTES, dict(params), root)


def _open(path: str, view: Callable[[Api], Answer], summary: str, answer: str) -> Route:
    return Route(method="GET", path=path, view=view, summary=summary, answers={200: answer})


ROUTES = [
    _open("/v2", discovery.version_2, "About v2", "application/json"),
    _open("/v2/", discovery.version_2, "About v2", "application/json"),
    _open("/v2/openapi.json", document, "This document", "application/json"),
    _open("/v2/docs", page, "This document as a page", "text/html"),
    Route(
        method="GET",
        path="/v2/leases",
        rule="leases:get",
        view=lease_views.index,
        summary="List leases",
        query=queries.LeaseQuery,
        answers={200: schemas.LeasePage},
        refusals=(*_CALLER, InvalidInput),
    ),
    Route(
        method="POST",
        path="/v2/leases",
        rule="leases:post",
        view=lease_views.create,
        summary="Make a lease",
        body=schemas.LeaseRequest,
        headers=("Idempotency-Key",),
        gives=("ETag", "Location"),
        answers={201: schemas.Lease},
        refusals=(*_CALLER, *_BODY, *_MORE, Conflict, RequestUnderWay, IdempotencyKeyReused),
    ),
    Route(
        method="GET",
        path="/v2/leases/<lease_id>",
        rule="leases:get",
        view=lease_views.show,
        summary="Show a lease",
        headers=("If-None-Match",),
        gives=("ETag",),
        answers={200: schemas.Lease, 304: None},
        refusals=(*_CALLER, NotFound),
    ),
    Route(
        method="PATCH",
        path="/v2/leases/<lease_id>",
        rule="leases:put",
        view=lease_views.update,
        summary="Change a lease",
        body=schemas.LeaseChange,
        headers=("If-Match",),
        gives=("ETag",),
        answers={200: schemas.Lease},
        refusals=(*_CALLER, *_BODY, *_MORE, NotFound, Conflict, PreconditionFailed),
    ),
    Route(
        method="DELETE",
        path="/v2/leases/<lease_id>",
        rule="leases:delete",
        view=lease_views.delete,
        summary="Remove a lease, ending it first if it has started",
        headers=("If-Match",),
        answers={202: None, 204: None},
        refusals=(*_CALLER, NotFound, PreconditionFailed, Contention),
    ),
    Route(
        method="GET",
        path="/v2/resources",
        rule="resources:get",
        view=resource_views.index,
        summary="List what can be reserved",
        query=queries.ResourceQuery,
        answers={200: schemas.ResourcePage},
        refusals=(*_CALLER, InvalidInput),
    ),
    Route(
        method="POST",
        path="/v2/resources",
        rule="resources:post",
        view=resource_views.create,
        summary="Make something that the cloud has reservable",
        body=resource_schemas.ResourceRequest,
        gives=("Location",),
        answers={201: schemas.Resource},
        refusals=(*_CALLER, *_BODY, NotFound, Conflict, Contention),
    ),
    Route(
        method="GET",
        path="/v2/resources/<resource_id>",
        rule="resources:get",
        view=resource_views.show,
        summary="Show something that can be reserved",
        answers={200: schemas.Resource},
        refusals=(*_CALLER, NotFound),
    ),
    Route(
        method="DELETE",
        path="/v2/resources/<resource_id>",
        rule="resources:delete",
        view=resource_views.delete,
        summary="Have something reservable no more",
        answers={204: None},
        refusals=(*_CALLER, InvalidInput, NotFound, Conflict, Contention),
    ),
    Route(
        method="GET",
        path="/v2/availability",
        rule="availability:get",
        view=availability.show,
        summary="See how much is free when",
        query=queries.AvailabilityQuery,
        answers={200: capacity_schemas.Availability},
        refusals=(*_CALLER, InvalidInput),
    ),
    Route(
        method="POST",
        path="/v2/availability/search",
        rule="availability:get",
        view=availability.search,
        summary="Find windows in which there is enough",
        body=capacity_schemas.WindowSearch,
        answers={200: capacity_schemas.Offers},
        refusals=(*_CALLER, *_BODY),
    ),
    Route(
        method="GET",
        path="/v2/limits",
        rule="limits:get",
        view=limits.show,
        summary="See what you may have, and have",
        answers={200: capacity_schemas.Limits},
        refusals=_CALLER,
    ),
    Route(
        method="GET",
        path="/v2/notifications",
        rule="notifications:get",
        view=notification_views.index,
        summary="List what has happened, from a cursor on, or wait for it",
        query=queries.NotificationQuery,
        answers={200: notification_schemas.NotificationPage},
        refusals=(*_CALLER, InvalidInput, NotificationsRemoved, TooManyFollowers),
    ),
    Route(
        method="GET",
        path="/v2/notifications/stream",
        rule="notifications:get",
        view=notification_views.stream,
        summary="Follow what happens, as Server-Sent Events",
        query=queries.FilterQuery,
        headers=("Last-Event-ID",),
        answers={200: "text/event-stream"},
        refusals=(*_CALLER, InvalidInput, NotificationsRemoved, TooManyFollowers),
    ),
    Route(
        method="GET",
        path="/v2/subscriptions",
        rule="subscriptions:get",
        view=subscriptions.index,
        summary="List subscriptions",
        query=queries.SubscriptionQuery,
        answers={200: notification_schemas.SubscriptionPage},
        refusals=(*_CALLER, InvalidInput),
    ),
    Route(
        method="POST",
        path="/v2/subscriptions",
        rule="subscriptions:post",
        view=subscriptions.create,
        summary="Have notifications sent to a place of yours",
        body=notification_schemas.SubscriptionRequest,
        gives=("Location",),
        answers={201: notification_schemas.Subscription},
        refusals=(*_CALLER, *_BODY, Contention, NotificationsRemoved),
    ),
    Route(
        method="GET",
        path="/v2/subscriptions/<subscription_id>",
        rule="subscriptions:get",
        view=subscriptions.show,
        summary="Show a subscription",
        answers={200: notification_schemas.Subscription},
        refusals=(*_CALLER, NotFound),
    ),
    Route(
        method="PATCH",
        path="/v2/subscriptions/<subscription_id>",
        rule="subscriptions:put",
        view=subscriptions.update,
        summary="Change a subscription, or let it go on",
        body=notification_schemas.SubscriptionChange,
        answers={200: notification_schemas.Subscription},
        refusals=(*_CALLER, *_BODY, Contention, NotFound, NotificationsRemoved),
    ),
    Route(
        method="DELETE",
        path="/v2/subscriptions/<subscription_id>",
        rule="subscriptions:delete",
        view=subscriptions.delete,
        summary="Remove a subscription",
        answers={204: None},
        refusals=(*_CALLER, NotFound, Contention),
    ),
    Route(
        method="GET",
        path="/v2/subscriptions/<subscription_id>/dead-letters",
        rule="subscriptions:get",
        view=subscriptions.dead_letters,
        summary="List what a receiver did not take",
        query=queries.DeadLetterQuery,
        answers={200: notification_schemas.DeadLetterPage},
        refusals=(*_CALLER, InvalidInput, NotFound),
    ),
    Route(
        method="POST",
        path="/v2/subscriptions/<subscription_id>/redeliver",
        rule="subscriptions:put",
        view=subscriptions.redeliver,
        summary="Have dead letters sent again",
        body=notification_schemas.Redelivery,
        answers={202: notification_schemas.Redelivering},
        refusals=(*_CALLER, *_BODY, Contention, NotFound, Conflict),
    ),
    *preparation_routes.ROUTES,
]
