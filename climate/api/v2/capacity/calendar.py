"""The routes of ``/v2/calendar``: which resources are occupied, from when to when.

Leases of other projects are shown without a name. Operators can request the names of all leases.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from flask import request

from climate.api.call import Answer, Call
from climate.api.v2.capacity import calendar_schemas as schemas
from climate.api.v2.http import spans, validation
from climate.api.v2.http.fields import NOW, show
from climate.api.v2.leases.reservations import moment
from climate.core.errors import InvalidInput, InvalidQuery, UnsupportedResourceType
from climate.core.matching import expression
from climate.core.matching.calendar_rows import RowFilter, VisibleLease
from climate.core.matching.occupancy import Interval, Kind
from climate.core.matching.property_type import bind
from climate.manager.resources import calendar, calendar_changes
from climate.manager.resources.calendar import CalendarPage, CalendarRow, CalendarView
from climate.manager.resources.calendar_changes import Version


def index(call: Call) -> Answer:
    """Show what occupies resources over time, as intervals or in buckets of equal length."""
    query = validation.query(schemas.CALENDAR_QUERY)
    if query["whose"] == "all":
        call.require("calendar:get_all")
    _check_resolution(query["resolution"], query["limit"])
    window = spans.in_query(moment(call, query.get("start", NOW)), query["end"])
    view = CalendarView(
        filter=_filter(call, query),
        window=window,
        offset=query["offset"],
        limit=query["limit"],
        resolution=query["resolution"],
        viewer=call.caller.project_id,
        sees_all=query["whose"] == "all",
        private=call.may("resources:get_private"),
    )
    try:
        page = calendar.show(call.runtime, view)
    except InvalidQuery as error:
        named = "group_by" if "in group_by" in error.message else "properties"
        raise validation.of_parameter(error, named) from None
    return _tagged(_body(page, view))


def changes(call: Call) -> Answer:
    """List what changed in the calendar after a version; the request can wait for a change."""
    query = validation.query(schemas.CHANGES_QUERY)
    after = _version(query["after"]) if "after" in query else None
    wanted = query.get("resource_type")
    try:
        if after is None:
            found = calendar_changes.find(call.runtime, None, wanted)
        else:
            project_id = call.caller.project_id
            found = calendar_changes.wait(
                call.runtime, after, wanted, seconds=query["wait"], project_id=project_id
            )
    except UnsupportedResourceType as error:
        raise validation.of_parameter(error, "resource_type") from None
    windows = [{"start": show(window.start), "end": show(window.end)} for window in found.windows]
    return {"version": str(found.version), "reset": found.reset, "changes": windows}, 200


def _version(text: str) -> Version:
    seq, _, resources = text.partition(".")
    return Version(int(seq), resources)


def _check_resolution(resolution: int, limit: int) -> None:
    if 0 < resolution < schemas.MIN_RESOLUTION:
        text = f"This must be 0, or from {schemas.MIN_RESOLUTION} to {schemas.MAX_RESOLUTION}."
        raise validation.of_parameter(InvalidInput(text), "resolution")
    if not resolution and limit > schemas.MAX_ROWS:
        text = f"With intervals this must be at most {schemas.MAX_ROWS}: request a resolution."
        raise validation.of_parameter(InvalidInput(text), "limit")


def _filter(call: Call, query: Mapping[str, Any]) -> RowFilter:
    """Return the filter that selects the calendar's rows (resources). Raises InvalidInput."""
    try:
        resource_type = call.runtime.plugin(query["resource_type"]).type_of_resources
    except UnsupportedResourceType as error:
        raise validation.of_parameter(error, "resource_type") from None
    try:
        types = call.runtime.settings.property_types
        expression_ = bind(expression.parse(query.get("properties")), types)
    except InvalidQuery as error:
        raise validation.of_parameter(error, "properties") from None
    return RowFilter(
        resource_type=resource_type,
        query=expression_,
        part=query.get("q"),
        group_by=query.get("group_by"),
        by_name=query["sort"] == "name",
    )


def _body(page: CalendarPage, view: CalendarView) -> dict[str, Any]:
    places = {id_: place for place, id_ in enumerate(page.leases)}
    body: dict[str, Any] = {
        "start": show(view.window.start),
        "end": show(view.window.end),
        "resolution": view.resolution,
        "version": str(page.version),
        "total": page.total,
        "reservable": page.reservable,
        "offset": view.offset,
        "rows": [_row(row, places, view) for row in page.rows],
        "leases": [_lease(lease, view.viewer) for lease in page.leases.values()],
    }
    if page.groups is not None:
        body["groups"] = [
            {
                "name": group.name,
                "first": group.first,
                "rows": group.rows,
                "free_now": group.free_now,
            }
            for group in page.groups
        ]
    return body


def _row(row: CalendarRow, places: Mapping[str, int], view: CalendarView) -> dict[str, Any]:
    body = {"id": str(row.id), "name": row.name, "group": row.group, "state": row.state.value}
    if view.resolution:
        own = "".join("1" if present else "0" for present in row.own)
        return {**body, "b": row.digits, "own": own}
    return {**body, "x": list(_flat(row.intervals, places))}


def _flat(intervals: Iterable[Interval], places: Mapping[str, int]) -> Iterable[int]:
    for interval in intervals:
        yield interval.start
        yield interval.end - interval.start
        yield interval.kind.value
        if interval.kind is Kind.OWN and interval.lease is not None:
            yield places[interval.lease]
        elif interval.kind is Kind.SHARED:
            yield interval.tenths


def _lease(lease: VisibleLease, project_id: str) -> dict[str, Any]:
    return {
        "id": lease.id,
        "name": lease.name,
        "status": lease.status,
        "degraded": lease.degraded,
        "start": show(lease.start),
        "end": show(lease.end),
        "project_id": lease.project_id,
        "mine": lease.project_id == project_id,
    }


def _tagged(body: Mapping[str, Any]) -> Answer:
    """Return ``body`` with its ETag, or the status 304 if the client already has this body.

    The ETag ignores the field ``version``, which can change although the calendar is the same.
    """
    stable = json.dumps({**body, "version": ""}, sort_keys=True, separators=(",", ":"))
    tag = hashlib.sha256(stable.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    headers = {"ETag": f'"{tag}"'}
    if request.if_none_match.contains(tag):
        return None, 304, headers
    return body, 200, headers
