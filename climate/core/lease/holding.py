"""Records that say which lease has booked which resource, and from when to when."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from climate.core.lease.lifecycle import LeaseStatus
from climate.core.provisioning.host_state import HostState


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldResource:
    """A resource that a reservation has or will have, from ``start`` to ``busy_until``.

    ``busy_until`` is the time at which the cleaning after the lease is finished. ``amounts`` is how
    much of the resource the reservation has, such as ``{"VCPU": 4}``. It is empty if the
    reservation has the whole resource.
    """

    reservation_id: str
    resource_id: int
    name: str
    resource_type: str
    start: datetime
    busy_until: datetime
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseResource:
    """A resource of a lease, with the information that the owner of the lease may see.

    ``end`` is the end of the lease. ``state`` says whether this lease can use the resource, for
    example "ready" or "preparing". ``ready_at`` is when a provisioner finished preparing the host
    for this lease (None: not yet). ``handed_over`` means that climate has handed the resource over
    to the project.
    """

    held: HeldResource
    properties: Mapping[str, str]
    end: datetime
    state: HostState
    ready_at: datetime | None
    handed_over: bool

    @property
    def name(self) -> str:
        """The name of the resource in the cloud."""
        return self.held.name

    @property
    def id(self) -> str:
        """The id of the reservation. Resources with the same name are sorted by this id."""
        return self.held.reservation_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """A booking of a resource, and the lease to which it belongs. Only operators may see it.

    The lease has the resource from ``start`` to ``end``. Then the resource is cleaned until
    ``busy_until``.
    """

    lease_id: str
    lease_name: str
    project_id: str
    user_id: str
    status: LeaseStatus
    reservation_id: str
    resource_id: int
    start: datetime
    end: datetime
    busy_until: datetime
    amounts: Mapping[str, int]

    @property
    def id(self) -> str:
        """The id of the reservation. Bookings with the same start are sorted by this id."""
        return self.reservation_id
