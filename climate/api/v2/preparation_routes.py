"""The routes of v2 that are about getting hosts ready."""

from climate.api.v2 import preparation_schemas as schemas
from climate.api.v2 import preparations, readiness
from climate.api.v2.openapi import Route
from climate.core.errors import (
    BackendUnavailable,
    Conflict,
    Contention,
    ContentTooLarge,
    Forbidden,
    IdentityUnavailable,
    InvalidInput,
    NotFound,
    Unauthenticated,
    UnsupportedMediaType,
)

_CALLER = (Unauthenticated, Forbidden, IdentityUnavailable, BackendUnavailable)
_BODY = (InvalidInput, ContentTooLarge, UnsupportedMediaType)

ROUTES = [
    Route(
        method="GET",
        path="/v2/preparations",
        rule="preparations:get",
        view=preparations.index,
        summary="List hosts that are to be got ready",
        query=schemas.PreparationQuery,
        answers={200: schemas.PreparationPage},
        refusals=(*_CALLER, InvalidInput),
    ),
    Route(
        method="GET",
        path="/v2/preparations/<preparation_id>",
        rule="preparations:get",
        view=preparations.show,
        summary="Show a host that is to be got ready",
        answers={200: schemas.Preparation},
        refusals=(*_CALLER, NotFound),
    ),
    Route(
        method="POST",
        path="/v2/preparations/<preparation_id>/report",
        rule="preparations:report",
        view=preparations.report,
        summary="Say how far one is with a host",
        body=schemas.Report,
        answers={200: schemas.Preparation},
        refusals=(*_CALLER, *_BODY, NotFound, Conflict, Contention),
    ),
    Route(
        method="GET",
        path="/v2/readiness",
        rule="readiness:get",
        view=readiness.summary,
        summary="See which share of leases was ready at the start",
        query=schemas.SummaryQuery,
        answers={200: schemas.Summary},
        refusals=(*_CALLER, InvalidInput),
    ),
    Route(
        method="GET",
        path="/v2/leases/<lease_id>/readiness",
        rule="leases:get",
        view=readiness.of_lease,
        summary="See how ready the hosts of a lease are",
        answers={200: schemas.LeaseReadiness},
        refusals=(*_CALLER, NotFound),
    ),
    Route(
        method="GET",
        path="/v2/resources/<resource_id>/readiness",
        rule="readiness:get",
        view=readiness.of_host,
        summary="See how ready a host is, and what is known of it",
        answers={200: schemas.HostReadiness},
        refusals=(*_CALLER, NotFound),
    ),
    Route(
        method="PATCH",
        path="/v2/resources/<resource_id>/readiness",
        rule="readiness:put",
        view=readiness.change_host,
        summary="Set a host aside, or take it back",
        body=schemas.HostChange,
        answers={200: schemas.HostReadiness},
        refusals=(*_CALLER, *_BODY, NotFound, Contention),
    ),
]
