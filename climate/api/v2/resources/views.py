"""The routes of ``/v2/resources``: reservable resources of all types, and their bookings.

Only operators see which lease has a resource.
"""

import json
from collections.abc import Mapping
from typing import Any

from flask import request

from climate.api.call import Answer, Call
from climate.api.server import compression
from climate.api.v2.http import paging, validation
from climate.api.v2.leases.requests import fingerprint
from climate.api.v2.resources import schemas
from climate.api.v2.resources.properties import texts
from climate.core.errors import InvalidDate, InvalidQuery, NotFound, PreconditionFailed
from climate.core.lease.model import HOST, Resource
from climate.core.matching import expression
from climate.core.matching.property_type import bind
from climate.core.page import BOOKING_SORTS, RESOURCE_SORTS, Page, Part, ResourceFilter
from climate.manager.resources import holders, registry, states

# Resource types with routes in v1, whose policy rules apply here, too.
_V1_NOUNS = {
    "physical:host": "oshosts",
    "virtual:floatingip": "floatingips",
    "virtual:network": "networks",
}


def index(call: Call) -> Answer:
    """List reservable resources, by type, name, state or a property expression."""
    query = validation.query(schemas.RESOURCE_QUERY)
    page = paging.page(query, numbered=True)
    if query["bookings"]:
        call.require("resources:get_bookings")
    part = _find(call, query, page)
    described = states.describe(
        call.runtime,
        part.items,
        reports=call.may("readiness:get"),
        bookings=query["bookings"],
    )
    following = paging.following(page, part, RESOURCE_SORTS)
    schema = schemas.BOOKED_RESOURCE_PAGE if query["bookings"] else schemas.RESOURCE_PAGE
    return schema.dump({"resources": described, "next": following}), 200


def show(call: Call, resource_id: str) -> Answer:
    """Show a reservable resource."""
    private = call.may("resources:get_private")
    resource = registry.get_resource(
        call.runtime, number(resource_id), private=private, project_id=call.caller.project_id
    )
    answer = _answer(call, resource, 200)
    etag = answer[2]["ETag"]
    has_condition = "If-Match" in request.headers and not request.if_match.star_tag
    if has_condition and not compression.contains(request.if_match, etag.strip('"')):
        raise _changed(resource, etag)
    return answer


def bookings(call: Call, resource_id: str) -> Answer:
    """List the bookings of a resource, with their leases."""
    query = validation.query(schemas.BOOKING_QUERY)
    start, end = query.get("start", call.asked_at), query.get("end")
    if end is not None and end <= start:
        text = "This must be later than start."
        raise validation.of_parameter(InvalidDate(f"end: {text}"), "end")
    page = paging.page(query)
    part = holders.bookings(call.runtime, number(resource_id), start, end, page)
    following = paging.following(page, part, BOOKING_SORTS)
    return schemas.BOOKING_PAGE.dump({"bookings": part.items, "next": following}), 200


def create(call: Call) -> Answer:
    """Register a resource of the cloud as reservable."""
    data = validation.load(schemas.RESOURCE_REQUEST, validation.body(call))
    _require(call, data["resource_type"], "post")
    extra = texts(call.runtime.settings.property_types, data["properties"], ("properties",))
    created = registry.register(call.runtime, data["resource_type"], data["name"], extra=extra)
    body, status, headers = _answer(call, created, 201)
    return body, status, {**headers, "Location": f"{request.root_path}/v2/resources/{created.id}"}


def update(call: Call, resource_id: str) -> Answer:
    """Add, change or remove properties of a resource that the cloud does not report."""
    data = validation.load(schemas.RESOURCE_CHANGE, validation.body(call))
    resource = registry.get_resource(call.runtime, number(resource_id), private=True)
    if resource.type == HOST:  # the only type whose properties v1 changes
        call.require("oshosts:put")
    changes = texts(call.runtime.settings.property_types, data["properties"], ("properties",))
    registry.set_properties(call.runtime, resource.type, resource.id, changes, _check_if_match)
    private = call.may("resources:get_private")
    changed = registry.get_resource(call.runtime, resource.id, private=private)
    return _answer(call, changed, 200)


def _answer(call: Call, resource: Resource, status: int) -> tuple[Any, int, dict[str, str]]:
    """Return the answer with a resource and its ETag: the version, and a hash of the body."""
    body = _described(call, resource)
    packed = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return body, status, {"ETag": f'"{_version(resource)}.{fingerprint(packed)[:16]}"'}


def _version(resource: Resource) -> str:
    """Return the part of the ETag that a change needs. Stats and the state do not change it."""
    return f"{resource.id}-{resource.version}"


def _check_if_match(resource: Resource) -> None:
    """Raise PreconditionFailed if the header ``If-Match`` names another version of a resource."""
    if "If-Match" not in request.headers or request.if_match.star_tag:
        return
    version = _version(resource)
    # Werkzeug reads the empty tag "" as None.
    if not any((tag or "").partition(".")[0] == version for tag in request.if_match):
        raise _changed(resource, f'"{version}"')


def _changed(resource: Resource, etag: str) -> PreconditionFailed:
    return PreconditionFailed(
        f"Resource {resource.id} has changed since you read it: read it again, then decide",
        {"etag": etag},
    )


def delete(call: Call, resource_id: str) -> Answer:
    """Make a resource not reservable any more; fails if a present or future lease has it."""
    validation.no_query()
    resource = registry.get_resource(call.runtime, number(resource_id), private=True)
    _require(call, resource.type, "delete")
    registry.delete(call.runtime, resource.type, resource.id)
    return None, 204


def _find(call: Call, query: Mapping[str, Any], page: Page) -> Part[Resource]:
    types = tuple(sorted(call.runtime.plugins))
    if "resource_type" in query:
        types = (call.runtime.plugin(query["resource_type"]).resource_type,)
    private, declared = call.may("resources:get_private"), call.runtime.settings.property_types
    try:
        wanted = ResourceFilter(
            resource_types=types,
            query=bind(expression.parse(query.get("properties")), declared),
            name_part=query["q"],
        )
        return registry.find_resources(
            call.runtime,
            wanted,
            page,
            private=private,
            project_id=call.caller.project_id,
            states=query["state"],
        )
    except InvalidQuery as error:
        raise validation.of_parameter(error, "properties") from None


def _described(call: Call, resource: Resource) -> Any:  # noqa: ANN401 - a JSON object
    reports = call.may("readiness:get")
    (described,) = states.describe(call.runtime, [resource], reports=reports)
    return schemas.RESOURCE.dump(described)


def _require(call: Call, resource_type: str, verb: str) -> None:
    """Check the policy rule that the same action requires in v1; raise Forbidden if it fails.

    ``verb`` is the action: ``post`` (make reservable) or ``delete``. For example, ``post`` of a
    host requires the rule ``oshosts:post``. Resource types without routes in v1 have no such rule,
    and are not checked.
    """
    if noun := _V1_NOUNS.get(resource_type):
        call.require(f"{noun}:{verb}")


def number(resource_id: str) -> int:
    """Return ``resource_id``, an id from the URL, as a number.

    Raise NotFound if it is not a number.
    """
    if resource_id.isascii() and resource_id.isdecimal() and len(resource_id) < len(str(2**63)):
        return int(resource_id)
    raise NotFound(f"There is no resource {resource_id}")
