"""Resources, their types, and how free they are over time."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NotRequired, TypedDict, Unpack

import msgspec

from climate.client.errors import ClientError, NotFound
from climate.client.models import (
    Booking,
    Calendar,
    FoundWindows,
    FreeStep,
    HostReadiness,
    Limits,
    Model,
    Property,
    ReadinessShare,
    Resource,
    ResourceType,
)
from climate.client.reservations import ReservationRequest
from climate.client.transport import Answer, Transport, convert, moment, segment

_PATH = "/resources"
Time = datetime | str
# The service accepts 1,000 updates of stats and 1 MiB in a request.
_BATCH, _BATCH_BYTES = 1_000, 900_000


class ResourceFilter(TypedDict, total=False):
    """Which resources to list. ``properties`` is a property expression, as text or as JSON.

    ``q`` is a part of the name. ``bookings`` adds the present and the next booking. ``sort`` is
    ``id`` or ``name``, with ``-`` for descending order.
    """

    resource_type: str
    q: str
    state: Sequence[str]
    properties: Any
    bookings: bool
    sort: str
    limit: int


class CalendarQuery(TypedDict, total=False):
    """Which part of the calendar to read, and whose leases to name: ``project`` or ``all``."""

    start: Time
    properties: Any
    q: str
    group_by: str
    sort: str
    offset: int
    limit: int
    whose: str


class StatsUpdate(TypedDict):
    """New stats of a resource, which ``resource`` names by its name in the cloud or its id.

    ``generation`` must grow with each update of the resource. None removes a property.
    ``resource_type`` is needed only if resources of several types have the name.
    """

    resource: str
    generation: int
    stats: Mapping[str, Any]
    resource_type: NotRequired[str]


class StatsResult(Model, frozen=True, kw_only=True):
    """What became of an update: ``applied``, ``unchanged``, ``stale`` or ``unknown``.

    ``generation`` is the one that climate has now. ``id`` is None if the resource is unknown.
    """

    resource: str
    id: str | None
    result: str
    generation: int | None


class Resources:
    """The reservable resources. All methods raise the errors of ``Transport.send``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, **wanted: Unpack[ResourceFilter]) -> Iterator[Resource]:
        """Yield the resources; pages are requested as they are needed."""
        return self._transport.pages(_PATH, "resources", Resource, _with_json(wanted))

    def get(self, resource_id: str) -> Resource:
        """Return a resource, with its ETag. Raises NotFound."""
        return _with_etag(self._transport.send("GET", _path(resource_id)))

    def find(self, name_or_id: str) -> Resource:
        """Return the resource with this id or name. Raises NotFound, or Ambiguous."""
        named = [item for item in self.list(q=name_or_id) if item.name == name_or_id]
        if len(named) > 1:
            ids = ", ".join(f"{item.id} ({item.resource_type})" for item in named)
            raise Ambiguous(f"{len(named)} resources are named {name_or_id}: {ids}. Use an id.")
        if named:
            return named[0]
        if name_or_id.isdecimal():
            return self.get(name_or_id)
        detail = f"No resource is named {name_or_id}."
        raise NotFound(404, {"code": "not_found", "detail": detail})

    def register(
        self, resource_type: str, name: str, properties: Mapping[str, Any] | None = None
    ) -> Resource:
        """Make a resource of the cloud reservable (administrators)."""
        body = {"resource_type": resource_type, "name": name, "properties": dict(properties or {})}
        return _with_etag(self._transport.send("POST", _PATH, body=body))

    def update(
        self, resource_id: str, properties: Mapping[str, Any], *, if_match: str | None = None
    ) -> Resource:
        """Add, change or remove (None) properties of a resource (administrators).

        With ``if_match``, an ETag, raise Changed if the resource has changed since.
        """
        headers = {"If-Match": if_match} if if_match else {}
        body = {"properties": dict(properties)}
        path = _path(resource_id)
        return _with_etag(self._transport.send("PATCH", path, body=body, headers=headers))

    def update_stats(self, updates: Iterable[StatsUpdate]) -> Iterator[StatsResult]:
        """Push stats of resources; yield a result for each update (administrators).

        The updates are sent in batches, as the caller iterates. If an update of a batch is invalid,
        climate stores nothing of this batch. A batch is sent again while the service is
        unavailable; the generations make that safe.
        """
        for items in _batches(updates):
            answer = self._transport.send(
                "POST", f"{_PATH}/stats", body={"items": items}, safe=True
            )
            yield from answer.member("results", list[StatsResult])

    def remove(self, resource_id: str) -> None:
        """Remove a resource that no lease has or will have (administrators)."""
        self._transport.send("DELETE", _path(resource_id))

    def bookings(
        self, resource_id: str, *, start: Time | None = None, end: Time | None = None
    ) -> Iterator[Booking]:
        """Yield the bookings of a resource from ``start`` (default: now) on (operators)."""
        query = {"start": start, "end": end}
        return self._transport.pages(f"{_path(resource_id)}/bookings", "bookings", Booking, query)

    def readiness(self, resource_id: str) -> HostReadiness:
        """Return whether a host is ready for its next lease (operators)."""
        return self._transport.get(f"{_path(resource_id)}/readiness", HostReadiness)

    def set_aside(self, resource_id: str, reason: str | None) -> HostReadiness:
        """Put a host in quarantine for a ``reason``; None ends the quarantine (operators)."""
        path = f"{_path(resource_id)}/readiness"
        answer = self._transport.send("PATCH", path, body={"set_aside": reason})
        return convert(answer.body, HostReadiness)

    def types(self) -> Sequence[ResourceType]:
        """Return the resource types that can be reserved."""
        return self._transport.get("/resource-types", tuple[ResourceType, ...])

    def properties(self, resource_type: str) -> Sequence[Property]:
        """Return the properties that the resources of a type have, with some values."""
        path = f"/resource-types/{segment(resource_type)}/properties"
        return self._transport.send("GET", path).member("properties", tuple[Property, ...])


class Need(Model, frozen=True, kw_only=True):
    """What a waiting lease needs: ``minimum`` to ``maximum`` units of this size (``amounts``)."""

    resource_type: str
    minimum: int
    maximum: int
    amounts: dict[str, int]


class WaitListEntry(Model, frozen=True, kw_only=True):
    """An entry of the wait list; ``duration`` is in seconds.

    A lease of another project has no id, and no other field below ``promised_start``.
    """

    position: int
    resource_types: list[str]
    needs: list[Need]
    duration: int
    priority: int
    promised_start: datetime | None = None
    lease_id: str | None = None
    lease_name: str | None = None
    project_id: str | None = None
    until: datetime | None = None
    held_back: str | None = None


class Capacity:
    """What is free when, what occupies resources, and how much the caller may use."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def availability(
        self,
        resource_type: str,
        *,
        end: Time,
        start: Time | None = None,
        params: Mapping[str, Any] | None = None,
        resolution: int | None = None,
    ) -> list[FreeStep]:
        """Return how many units of a type are free over time, in consecutive windows.

        ``params`` describe a unit, as a reservation does. ``resolution`` is in seconds.
        """
        query = {
            "resource_type": resource_type,
            "start": start,
            "end": end,
            "params": json.dumps(params) if params else None,
            "resolution": resolution,
        }
        answer = self._transport.send("GET", "/availability", query=query)
        return answer.member("steps", list[FreeStep])

    def search(
        self,
        wanted: Sequence[ReservationRequest],
        duration: timedelta | int,
        *,
        end_by: Time,
        start_after: Time = "now",
        limit: int = 5,
    ) -> FoundWindows:
        """Return windows in which climate would admit all reservations now.

        The result also has windows that only the caller's limits forbid.
        """
        seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
        body = {
            "reservations": list(wanted),
            "duration": int(seconds),
            "start_after": moment(start_after),
            "end_by": moment(end_by),
            "limit": limit,
        }
        answer = self._transport.send("POST", "/availability/search", body=body)
        return convert(answer.body, FoundWindows)

    def calendar(
        self, resource_type: str, *, end: Time, **wanted: Unpack[CalendarQuery]
    ) -> Calendar:
        """Return a page of the calendar: what resources are occupied by until ``end``."""
        query = {**_with_json(wanted), "resource_type": resource_type, "end": end}
        return self._transport.get("/calendar", Calendar, query)

    def wait_list(
        self, resource_type: str | None = None, *, all_projects: bool = False
    ) -> Iterator[WaitListEntry]:
        """Yield the leases that wait for capacity, in their order.

        ``resource_type`` can be several types, joined by commas; by default, all are meant. With
        ``all_projects``, the leases of all projects are named (operators).
        """
        query = {"resource_type": resource_type, "all_projects": all_projects or None}
        return self._transport.pages("/wait-list", "wait_list", WaitListEntry, query)

    def limits(self, *, project_id: str | None = None, user_id: str | None = None) -> Limits:
        """Return the limits of the caller's project and user, or of others (administrators)."""
        query = {"project_id": project_id, "user_id": user_id}
        return self._transport.get("/limits", Limits, query)

    def readiness(
        self, *, since: Time, until: Time, period: str | None = None
    ) -> list[ReadinessShare]:
        """Return how many leases had all hosts ready at their start (operators)."""
        query = {"since": since, "until": until, "period": period}
        answer = self._transport.send("GET", "/readiness", query=query)
        return answer.member("readiness", list[ReadinessShare])


class Ambiguous(ClientError):
    """Several resources have the name."""


def _batches(updates: Iterable[StatsUpdate]) -> Iterator[list[StatsUpdate]]:
    """Yield the updates in lists that the service accepts."""
    batch, size = list[StatsUpdate](), 0
    for update in updates:
        length = len(json.dumps(update))
        if batch and (len(batch) == _BATCH or size + length > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(update)
        size += length
    if batch:
        yield batch


def _with_etag(answer: Answer) -> Resource:
    resource = convert(answer.body, Resource)
    return msgspec.structs.replace(resource, etag=answer.headers.get("ETag", ""))


def _path(resource_id: str) -> str:
    return f"{_PATH}/{segment(resource_id)}"


def _with_json(query: Mapping[str, Any]) -> dict[str, Any]:
    """Return a query whose property expression is text."""
    properties = query.get("properties")
    if properties is None or isinstance(properties, str):
        return dict(query)
    return {**query, "properties": json.dumps(properties)}
