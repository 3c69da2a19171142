"""``/v2/resources``: what there is to be reserved, without a word about who has it.

A resource of any type that is registered by itself is registered here.
"""

from typing import Any

from flask import request

from climate.api.call import Answer, Call
from climate.api.v1.schemas import Capabilities
from climate.api.v2.http import paging, queries, validation
from climate.api.v2.leases import schemas
from climate.api.v2.resources import schemas as resource_schemas
from climate.core.errors import InvalidInput, InvalidQuery, NotFound
from climate.core.matching import expression
from climate.core.page import RESOURCE_SORTS, ResourceFilter
from climate.manager import listing
from climate.manager.resources import registry

# What an operator forbids in v1 is forbidden here.
_IN_V1 = {
    "physical:host": "oshosts",
    "virtual:floatingip": "floatingips",
    "virtual:network": "networks",
}


def index(call: Call) -> Answer:
    """List resources of a type or of all, those that match a property expression or all."""
    asked = validation.query(queries.RESOURCE_QUERY)
    page = paging.page(asked)
    types = tuple(sorted(call.runtime.plugins))
    if "resource_type" in asked:
        types = (call.runtime.plugin(asked["resource_type"]).resource_type,)
    private = call.may("resources:get_private")
    try:
        wanted = ResourceFilter(
            resource_types=types, query=expression.parse(asked.get("properties"))
        )
        part = listing.find_resources(call.runtime, wanted, page, private=private)
    except InvalidQuery as error:
        raise validation.of_parameter(error, "properties") from None
    last = part.items[-1] if part.more else None
    beyond = paging.link(page, RESOURCE_SORTS[page.sort](last), last.id) if last else None
    return schemas.RESOURCE_PAGE.dump({"resources": part.items, "next": beyond}), 200


def show(call: Call, resource_id: str) -> Answer:
    """Show a resource."""
    private = call.may("resources:get_private")
    found = listing.get_resource(call.runtime, number(resource_id), private=private)
    body: dict[str, Any] = schemas.RESOURCE.dump(found)
    return body, 200


def create(call: Call) -> Answer:
    """Make something that the cloud has reservable."""
    asked = validation.load(resource_schemas.RESOURCE_REQUEST, validation.body(call))
    _require(call, asked["resource_type"], "post")
    try:
        own = Capabilities.load(asked["properties"])
    except InvalidInput as error:
        raise validation.placed(error, ("properties",)) from None
    made = registry.register(call.runtime, asked["resource_type"], asked["name"], extra=own)
    body: dict[str, Any] = schemas.RESOURCE.dump(made)
    return body, 201, {"Location": f"{request.root_path}/v2/resources/{made.id}"}


def delete(call: Call, resource_id: str) -> Answer:
    """Remove a resource that nobody has or will have."""
    validation.no_query()
    found = listing.get_resource(call.runtime, number(resource_id), private=True)
    _require(call, found.type, "delete")
    registry.delete(call.runtime, found.type, found.id)
    return None, 204


def _require(call: Call, resource_type: str, what: str) -> None:
    """Raise Forbidden if the caller may not in v1, where there is a rule for the type."""
    if noun := _IN_V1.get(resource_type):
        call.require(f"{noun}:{what}")


def number(resource_id: str) -> int:
    """Return the number that a resource's id is; whatever else is no resource's id."""
    if resource_id.isascii() and resource_id.isdecimal() and len(resource_id) < len(str(2**63)):
        return int(resource_id)
    raise NotFound(f"There is no resource {resource_id}")
