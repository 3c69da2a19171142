"""Bookings as a copy of the calendar in memory receives them from the database.

Times are integers: microseconds since 1970-01-01 UTC. Comparing integers is several times faster
than comparing ``datetime`` objects, and an ``array`` of them needs eight bytes for each.
"""

import hashlib
from array import array
from collections.abc import Mapping

from climate.core.record import record

#: The owner of a booking whose project is unknown, because its lease was deleted.
UNKNOWN_OWNER = 0


@record(frozen=True, slots=True)
class BookingChange:
    """A booking that was added to or removed from a resource.

    The booking occupies the resource in ``[start, end)``; ``end`` includes cleaning time.
    ``is_shared`` is false for a booking of the whole resource, and true for a share of one resource
    class. ``owner`` is the ``owner_hash`` of the project, or UNKNOWN_OWNER.
    """

    resource_id: int
    start: int
    end: int
    is_shared: bool
    owner: int
    is_added: bool


@record(frozen=True, slots=True)
class ResourceBookings:
    """All bookings of one kind (whole or shares) of one resource that are not over, by start.

    The arrays have one item for each booking: ``starts`` and ``ends`` have the type code ``q``,
    ``owners`` (see BookingChange) has ``i``.
    """

    resource_id: int
    is_shared: bool
    starts: "array[int]"
    ends: "array[int]"
    owners: "array[int]"


@record(frozen=True, slots=True)
class ResourceSpans:
    """The times of ResourceBookings, without the owners."""

    resource_id: int
    is_shared: bool
    starts: "array[int]"
    ends: "array[int]"


@record(frozen=True, slots=True)
class ResourceState:
    """A resource: its type, its properties, and whether new leases can book it."""

    resource_id: int
    type: str
    is_reservable: bool
    properties: Mapping[str, str]


def owner_hash(project_id: str) -> int:
    """Return a signed 32-bit hash of a project id, which is never UNKNOWN_OWNER.

    Different projects may have the same hash. So the hash only narrows down which bookings may be a
    requester's own. The SQL of the booking feed computes the same number.
    """
    digest = hashlib.md5(project_id.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big", signed=True) or 1
