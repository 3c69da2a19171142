"""``/v2/leases``."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from flask import request

from climate.api.call import Answer, Call
from climate.api.v2 import asking, etags, paging, queries, reading, schemas
from climate.api.v2.asking import moment
from climate.api.v2.fields import ASAP, NOW
from climate.core.change import Change
from climate.core.errors import InvalidInput, NotFound
from climate.core.lease import Lease
from climate.core.once import AlreadyAnswered, Once
from climate.core.page import LEASE_SORTS, LeaseFilter
from climate.core.window import later
from climate.manager import listing
from climate.manager.leases import create as leases
from climate.manager.leases import soonest
from climate.manager.leases import update as updates
from climate.manager.leases.drafts import LeaseRequest
from climate.manager.leases.reservation_changes import ReservationChange, check_own
from climate.manager.leases.update import LeaseChange

_LONGEST_KEY = 255
_WINDOW = ("starts_before", "starts_after", "ends_before", "ends_after")


def index(call: Call) -> Answer:
    """List leases of the project, or of all projects to those who may see them."""
    asked = reading.query(queries.LEASE_QUERY)
    page = paging.page(asked)
    if asked["all_projects"]:
        call.require("leases:get_all")
    wanted = LeaseFilter(
        project_id=None if asked["all_projects"] else call.caller.project_id,
        statuses=tuple(asked["status"]),
        **{name: asked.get(name) for name in ("name", "resource_type", *_WINDOW)},
    )
    part = listing.find_leases(call.runtime, wanted, page)
    last = part.items[-1] if part.more else None
    beyond = paging.link(page, LEASE_SORTS[page.sort](last), last.id) if last else None
    return schemas.LEASE_PAGE.dump({"leases": part.items, "next": beyond}), 200


def create(call: Call) -> Answer:
    """Make a lease, once for each Idempotency-Key."""
    body = reading.body(call)
    once = _once(call, body)
    try:
        if once is not None:
            # Before anything else: what could be asked for then may be refused now.
            leases.recall(call.runtime, once)
        return _created(_body(_make(call, body, once)))
    except AlreadyAnswered as told:
        return _created(told.answer)


def show(call: Call, lease_id: str) -> Answer:
    """Show a lease."""
    return _shown(visible(call, lease_id))


def update(call: Call, lease_id: str) -> Answer:
    """Change a lease."""
    lease = visible(call, lease_id)
    call.require("leases:put", lease.project_id)
    data = reading.load(schemas.LEASE_CHANGE, reading.body(call))
    change = LeaseChange(
        name=data.get("name"),
        dates=Change(
            start=moment(call, data.get("start")),
            end=moment(call, data.get("end")),
            before_end=data.get("before_end"),
            asked_at=call.asked_at,
        ),
        reservations=_reservation_changes(call, lease, data["reservations"]),
        added=asking.requests(call, data["add_reservations"], "add_reservations"),
        removed=tuple(data["remove_reservations"]),
        start_when=data.get("start_when"),
    )
    return _shown(updates.update(call.runtime, lease_id, change, call.owner, etags.if_match()))


def delete(call: Call, lease_id: str) -> Answer:
    """Remove a lease; 202 if it is being ended first."""
    reading.no_query()
    call.require("leases:delete", visible(call, lease_id).project_id)
    wait = call.api.conf.api.delete_wait
    gone = leases.delete(call.runtime, lease_id, wait, etags.if_match())
    return None, 204 if gone else 202


def visible(call: Call, lease_id: str) -> Lease:
    """Return the lease; one that the caller may not see does not exist for it."""
    try:
        lease = leases.get(call.runtime, lease_id)
    except NotFound:
        lease = None
    if lease is None or not call.may("leases:get", lease.project_id):
        raise NotFound(f"There is no lease {lease_id}")
    return lease


def _body(lease: Lease) -> dict[str, Any]:
    body: dict[str, Any] = schemas.LEASE.dump(lease)
    return body


def _shown(lease: Lease) -> Answer:
    body = _body(lease)
    return body, 200, {"ETag": etags.etag(body)}


def _created(body: Mapping[str, Any]) -> Answer:
    location = f"{request.root_path}{request.path}/{body['id']}"
    return body, 201, {"ETag": etags.etag(body), "Location": location}


def _once(call: Call, body: Mapping[str, Any]) -> Once | None:
    """Return which request this is, if the caller gave it a key; raises InvalidInput."""
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return None
    if not (key.isascii() and key.isprintable() and 0 < len(key) <= _LONGEST_KEY):
        text = f"This must be 1 to {_LONGEST_KEY} printable ASCII characters, such as a UUID."
        errors = [{"header": "Idempotency-Key", "detail": text}]
        raise InvalidInput(f"Idempotency-Key: {text}", {"errors": errors})
    return Once(
        project_id=call.caller.project_id,
        user_id=call.caller.user_id,
        key=key,
        fingerprint=etags.fingerprint(json.dumps(body, sort_keys=True)),
        answer=_body,
    )


def _make(call: Call, body: Mapping[str, Any], once: Once | None) -> Lease:
    data = reading.load(schemas.LEASE_REQUEST, body)
    if data["start"] == ASAP:
        asked = _request(call, {**data, "start": NOW, "end": data["end_by"]})
        length = timedelta(seconds=data["duration"])
        return soonest.create(call.runtime, call.owner, asked, length, once)
    return leases.create(call.runtime, call.owner, _request(call, data), once)


def _request(call: Call, data: Mapping[str, Any]) -> LeaseRequest:
    start = moment(call, data["start"])
    return LeaseRequest(
        asked_at=call.asked_at,
        name=data["name"],
        start=start,
        end=data["end"] if "end" in data else later(start, timedelta(seconds=data["duration"])),
        before_end=data.get("before_end"),
        start_when=data["start_when"],
        reservations=asking.requests(call, data["reservations"]),
        user_events=tuple((event["type"], event["at"]) for event in data["events"]),
    )


def _reservation_changes(
    call: Call, lease: Lease, asked: list[dict[str, Any]]
) -> tuple[ReservationChange, ...]:
    """Return the changes, each checked with what stays as it is."""
    present = {reservation.id: reservation for reservation in lease.reservations}
    parts = []
    for number, one in enumerate(asked):
        before = present.get(one["id"])
        if before is None:
            refusal = InvalidInput(f"Lease {lease.id} has no reservation {one['id']}")
            raise reading.placed(refusal, ("reservations", number, "id"))
        check_own(before)
        after = {**before.params, **one["params"]}
        parts.append(asking.params(call, before.resource_type, after, ("reservations", number)))
    reading.load_all(parts)
    return tuple(
        ReservationChange(id=one["id"], resource_type=None, params=one["params"]) for one in asked
    )
