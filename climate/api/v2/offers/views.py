"""The routes of ``/v2/offers``, with idempotency keys. The policy rules are those of leases."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from flask import request

from climate.api.call import Answer, Call
from climate.api.v2.http import paging, validation
from climate.api.v2.http.fields import ASAP
from climate.api.v2.leases import reservations
from climate.api.v2.leases.rendering import lease_body
from climate.api.v2.leases.requests import idempotent_request, lease_request, lease_search
from climate.api.v2.leases.views import created
from climate.api.v2.offers import schemas
from climate.core.errors import InvalidInput
from climate.core.lease.idempotency import AlreadyProcessed
from climate.core.lease.model import Lease
from climate.core.page import OFFER_SORTS
from climate.manager import offers
from climate.manager.leases.idempotency import IdempotentRequest, replay


def index(call: Call) -> Answer:
    """List open offers of your project, or of all projects; the first to expire comes first."""
    query = validation.query(schemas.OFFER_QUERY)
    if query["all_projects"]:
        call.require("leases:get_all")
    page = paging.page({**query, "sort": "expires"})
    project_id = None if query["all_projects"] else call.caller.project_id
    part = offers.find_offers(call.runtime, project_id, call.runtime.clock.now(), page)
    following = paging.following(page, part, OFFER_SORTS)
    return {"offers": [_body(offer) for offer in part.items], "next": following}, 200


def create(call: Call) -> Answer:
    """Create an offer, which holds capacity until it expires (at most one per Idempotency-Key)."""
    body = validation.body(call)
    # The key of a request for a lease with the same body is another one.
    idempotent = idempotent_request(call, {"offer": body}, _body)
    with reservations.causes_placed(call, body):
        try:
            replay(call.runtime.database, idempotent)
            return _created(_body(_create(call, body, idempotent)))
        except AlreadyProcessed as processed:
            return _created(processed.answer)


def show(call: Call, offer_id: str) -> Answer:
    """Show an open offer."""
    validation.no_query()
    return _body(_open(call, offer_id)), 200


def accept(call: Call, offer_id: str) -> Answer:
    """Accept an offer: it becomes a lease with the same id."""
    validation.no_query()
    body = validation.json_body(call) if request.get_data() else {}
    idempotent = idempotent_request(call, {"accept": offer_id, "body": body}, lease_body)
    try:
        # Before the offer is read: a repetition finds a lease instead.
        replay(call.runtime.database, idempotent)
        data = validation.load(schemas.ACCEPTANCE, body)
        offer = _open(call, offer_id)
        call.require("leases:post", offer.project_id)
        return created(
            lease_body(
                offers.accept_offer(call.runtime, call.owner, offer, data.get("name"), idempotent)
            )
        )
    except AlreadyProcessed as processed:
        return created(processed.answer)


def delete(call: Call, offer_id: str) -> Answer:
    """Delete an open offer: its capacity is free at once."""
    validation.no_query()
    offer = _open(call, offer_id)
    call.require("leases:delete", offer.project_id)
    offers.delete_offer(call.runtime, offer_id)
    return None, 204


def _open(call: Call, offer_id: str) -> Lease:
    """Return an open offer that the caller may see. Raises NotFound, OfferExpired, LeaseBusy."""
    absent = f"There is no offer {offer_id}"
    found = call.visible(offers.get_offer, offer_id, "leases:get", absent)
    return offers.check_open(found, call.runtime.clock.now())


def _create(call: Call, body: Mapping[str, Any], idempotent: IdempotentRequest | None) -> Lease:
    data = validation.load(schemas.OFFER_REQUEST, body)
    hold = _hold(call, data)
    if data["start"] == ASAP:
        search = lease_search(call, data)
        return offers.create_earliest_offer(call.runtime, call.owner, *search, hold, idempotent)
    wanted = lease_request(call, data)
    return offers.create_offer(call.runtime, call.owner, wanted, hold, idempotent)


def _hold(call: Call, data: Mapping[str, Any]) -> timedelta:
    longest = call.runtime.settings.offers.longest
    hold = data.get("hold")
    most = int(longest.total_seconds())
    if hold is None:
        return longest
    if hold > most:
        error = InvalidInput(f"An offer holds capacity for 1 to {most} seconds, not {hold}")
        raise validation.placed(error, ("hold",))
    return timedelta(seconds=hold)


def _created(body: Mapping[str, Any]) -> Answer:
    return body, 201, {"Location": f"{request.root_path}{request.path}/{body['id']}"}


def _body(offer: Lease) -> dict[str, Any]:
    body: dict[str, Any] = schemas.OFFER.dump(offer)
    return body
