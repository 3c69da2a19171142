"""The routes of ``/v2/leases``, with ETags (conditional changes) and idempotency keys."""

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from flask import request

from climate.api.call import Answer, Call
from climate.api.server import compression
from climate.api.v2.http import paging, spans, validation
from climate.api.v2.http.fields import ASAP
from climate.api.v2.leases import dry_run, reservations, schemas
from climate.api.v2.leases.rendering import lease_body
from climate.api.v2.leases.requests import (
    check_length,
    fingerprint,
    idempotent_request,
    lease_request,
    lease_search,
)
from climate.api.v2.leases.reservations import moment
from climate.core.errors import Contention, InvalidInput, PreconditionFailed
from climate.core.lease.change import Change
from climate.core.lease.idempotency import AlreadyProcessed
from climate.core.lease.model import Lease
from climate.core.page import LEASE_SORTS, LeaseFilter
from climate.manager.leases.create import (
    create_earliest,
    preview_earliest,
    preview_lease,
)
from climate.manager.leases.delete import delete_lease
from climate.manager.leases.idempotency import IdempotentRequest, replace_answer, replay
from climate.manager.leases.read import LeaseChanged, find_leases, get_lease
from climate.manager.leases.reservation_changes import (
    EarliestStart,
    LeaseChange,
    ReservationChange,
    check_no_part,
)
from climate.manager.leases.update import preview_change, update_lease
from climate.manager.wait_list.displacing import create_before_promises
from climate.manager.wait_list.waiting import (
    WaitRequest,
    change_wait,
    places,
    wait_for_lease,
)

T = TypeVar("T")

_MAX_KEY_LENGTH = 255
# Attempts of a conditional change while the lease changes in ways that its ETag does not show.
_ATTEMPTS = 10
_WINDOW = ("starts_before", "starts_after", "ends_before", "ends_after")


def index(call: Call) -> Answer:
    """List leases of your project, or of all projects."""
    query = validation.query(schemas.LEASE_QUERY)
    page = paging.page(query)
    if query["all_projects"]:
        call.require("leases:get_all")
    filter_ = LeaseFilter(
        project_id=None if query["all_projects"] else call.caller.project_id,
        statuses=tuple(query["status"]),
        **{name: query.get(name) for name in ("name", "resource_type", *_WINDOW)},
    )
    part = find_leases(call.runtime, filter_, page)
    following = paging.following(page, part, LEASE_SORTS)
    listed = places(call.runtime, part.items)
    bodies = [lease_body(lease, listed.get(lease.id)) for lease in part.items]
    return {"leases": bodies, "next": following}, 200


def create(call: Call) -> Answer:
    """Create a lease (at most one per Idempotency-Key), or only check the request (dry run)."""
    is_dry_run = validation.query(dry_run.DRY_RUN_QUERY)["dry_run"]
    body = validation.json_body(call)
    with reservations.causes_placed(call, body):
        return _preview(call, body) if is_dry_run else _create_once(call, body)


def show(call: Call, lease_id: str) -> Answer:
    """Show a lease."""
    lease = visible(call, lease_id)
    return _if_match(lease, lambda _: _shown(call, lease))


def update(call: Call, lease_id: str) -> Answer:
    """Change a lease, or only check the request (dry run)."""
    is_dry_run = validation.query(dry_run.DRY_RUN_QUERY)["dry_run"]
    lease = visible(call, lease_id)
    call.require("leases:put", lease.project_id)
    data = validation.load(schemas.LEASE_CHANGE, validation.json_body(call))
    if "wait" in data:
        if is_dry_run:
            raise InvalidInput("A change of wait has no dry run: leave out dry_run")
        wait = WaitRequest(**data["wait"])
        changed = _if_match(lease, lambda seen: change_wait(call.runtime, lease_id, wait, seen))
        return _shown(call, changed)
    dates, earliest = _changed_dates(call, lease, data)
    change = LeaseChange(
        name=data.get("name"),
        dates=dates,
        earliest=earliest,
        reservations=_reservation_changes(call, lease, data["reservations"]),
        added=reservations.requests(call, data["add_reservations"], "add_reservations"),
        removed=tuple(data["remove_reservations"]),
        start_when=data.get("start_when"),
        gives_back=True,
    )
    request = call.runtime, lease_id, change, call.owner
    try:
        with reservations.causes_placed(call, data, lease):
            if is_dry_run:
                preview = _if_match(lease, lambda seen: preview_change(*request, seen))
                return dry_run.answer(call, preview)
            return _shown(call, _if_match(lease, lambda seen: update_lease(*request, seen)))
    except PreconditionFailed as error:  # raised outside the use case, which counts all others
        name = "update_dry_run" if is_dry_run else "update"
        call.runtime.metrics.admission(name, error.code)
        raise


def delete(call: Call, lease_id: str) -> Answer:
    """Delete a lease; the status is 204 if it is deleted, 202 if a manager must still end it."""
    validation.no_query()
    lease = visible(call, lease_id)
    call.require("leases:delete", lease.project_id)
    wait = call.api.conf.api.delete_wait
    is_gone = _if_match(lease, lambda seen: delete_lease(call.runtime, lease_id, wait, seen))
    return None, 204 if is_gone else 202


def visible(call: Call, lease_id: str) -> Lease:
    """Return the lease. Raises NotFound if it does not exist or the caller may not see it."""
    absent = f"There is no lease {lease_id}"
    return call.visible(get_lease, lease_id, "leases:get", absent)


def _shown(call: Call, lease: Lease) -> Answer:
    """Return the answer with a lease. Its ETag does not cover the place in the wait list."""
    body = lease_body(lease)
    place = places(call.runtime, [lease]).get(lease.id)
    return lease_body(lease, place) if place else body, 200, {"ETag": _etag(body)}


def created(body: Mapping[str, Any]) -> Answer:
    """Return the answer with a new lease. Its ETag does not cover the place in the wait list."""
    location = f"{request.root_path}/v2/leases/{body['id']}"
    return body, 201, {"ETag": _etag({**body, "waiting": None}), "Location": location}


def _etag(body: Mapping[str, Any]) -> str:
    """Return the entity tag (ETag) of a lease, a hash of ``body``.

    ``body`` is the lease as answers contain it.
    """
    packed = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return f'"{fingerprint(packed)[:32]}"'


def _if_match(lease: Lease, change: Callable[[Lease | None], T]) -> T:
    """Call ``change`` if the header ``If-Match`` permits it, and return the result.

    - If the header is absent or ``*``, call ``change(None)``.
    - If the header has the ETag of ``lease``, call ``change(lease)``.
    - Otherwise raise PreconditionFailed.

    ``change(lease)`` raises LeaseChanged if the stored lease differs from ``lease``. The ETag can
    be the same even then, because it does not cover all fields. So this function compares the
    header with the ETag of the stored lease, and calls ``change`` again if they are equal. After
    ten attempts, it raises Contention.
    """
    if "If-Match" not in request.headers or request.if_match.star_tag:
        return change(None)
    for _ in range(_ATTEMPTS):
        current = _etag(lease_body(lease))
        if not compression.contains(request.if_match, current.strip('"')):
            raise PreconditionFailed(
                f"Lease {lease.id} has changed since you read it: read it again, then decide",
                {"etag": current},
            )
        try:
            return change(lease)
        except LeaseChanged as error:
            lease = error.present
    raise Contention(f"Managers keep changing lease {lease.id}: try again shortly")


def _create_once(call: Call, body: Mapping[str, Any]) -> Answer:
    idempotent = idempotent_request(call, body, lease_body)
    try:
        if idempotent is not None:
            # Before validation: a request that was valid the first time may be invalid now.
            replay(call.runtime.database, idempotent)
        lease = _create(call, body, idempotent)
        if "wait" not in body:
            return created(lease_body(lease))
        answer = lease_body(lease, places(call.runtime, [lease]).get(lease.id))
        replace_answer(call.runtime.database, idempotent, answer)
        return created(answer)
    except AlreadyProcessed as processed:
        return created(processed.answer)


def _create(call: Call, body: Mapping[str, Any], idempotent: IdempotentRequest | None) -> Lease:
    data = validation.load(schemas.LEASE_REQUEST, body)
    if "wait" in data:
        wait = WaitRequest(**data["wait"])
        return wait_for_lease(call.runtime, call.owner, *lease_search(call, data), wait, idempotent)
    if data["start"] == ASAP:
        return create_earliest(call.runtime, call.owner, *lease_search(call, data), idempotent)
    return create_before_promises(call.runtime, call.owner, lease_request(call, data), idempotent)


def _preview(call: Call, body: Mapping[str, Any]) -> Answer:
    data = validation.load(schemas.LEASE_REQUEST, body)
    if "wait" in data:
        raise InvalidInput(
            "A dry run shows whether the lease would be admitted now: leave out wait, and send"
            " end_by"
        )
    if data["start"] == ASAP:
        preview = preview_earliest(call.runtime, call.owner, *lease_search(call, data))
    else:
        preview = preview_lease(call.runtime, call.owner, lease_request(call, data))
    return dry_run.answer(call, preview)


def _changed_dates(
    call: Call, lease: Lease, data: Mapping[str, Any]
) -> tuple[Change, EarliestStart | None]:
    """Return the dates in ``data``, the validated body of a change of ``lease``.

    If the start is ``asap``, the second value is not None, and the first one has no start.
    """
    is_asap, now = data.get("start") == ASAP, call.asked_at.replace(microsecond=0)
    start = None if is_asap else moment(call, data.get("start"))
    end = moment(call, data.get("end"))
    if is_asap and "end_by" in data:
        spans.in_body(now, data["end_by"], "end_by")
    if "duration" not in data:
        first, last, present = start or lease.window.start, end or lease.window.end, lease.window
        if last - first > present.end - present.start:  # v1 creates longer leases
            check_length(first, last, "start" if end is None else "end")
    dates = Change(
        start=start,
        end=end,
        duration=timedelta(seconds=data["duration"]) if "duration" in data else None,
        before_end=data.get("before_end"),
        asked_at=call.asked_at,
    )
    return dates, EarliestStart(data.get("end_by")) if is_asap else None


def _reservation_changes(
    call: Call, lease: Lease, bodies: list[dict[str, Any]]
) -> tuple[ReservationChange, ...]:
    """Validate ``bodies``, changes of the reservations of ``lease``; return them as objects.

    Each change is validated together with the stored values of the parameters that it omits. Raises
    InvalidInput.
    """
    stored = {reservation.id: reservation for reservation in lease.reservations}
    parts = []
    for number, body in enumerate(bodies):
        before = stored.get(body["id"])
        if before is None:
            unknown = InvalidInput(f"Lease {lease.id} has no reservation {body['id']}")
            raise validation.placed(unknown, ("reservations", number, "id"))
        check_no_part(before)
        after = {**before.params, **body["params"], **_room(before.params, body)}
        parts.append(
            reservations.params(call, before.resource_type, after, ("reservations", number))
        )
    validation.load_all(parts)
    return tuple(
        ReservationChange(
            id=body["id"],
            resource_type=None,
            params=body["params"],
            give_back=tuple(body["give_back"]),
            add_hosts=tuple(body["add_hosts"]),
        )
        for body in bodies
    )


def _room(params: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, int]:
    """Return a ``max`` for a new ``min`` that may exceed the stored one, if named hosts join."""
    least = body["params"].get("min")
    is_needed = body["add_hosts"] and "max" in params and "max" not in body["params"]
    return {"max": max(params["max"], least)} if is_needed and isinstance(least, int) else {}
