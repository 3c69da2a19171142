"""Records of the resources of a lease, and of the bookings of a resource."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from climate.core.lease.lifecycle import LeaseStatus
from climate.core.provisioning.host_state import HostState


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldResource:
    """A resource that a reservation has, now or later, in ``[start, busy_until)``.

    The window includes cleaning time. ``amounts`` is by resource class. It is empty if the
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
    """A resource of a lease, as the owner of the lease sees it.

    ``state`` is its state in view of this lease. ``ready_at`` is when a provisioner had prepared
    the host for it (None: not yet). ``end`` is the end of the lease.
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
        """The id of the reservation, which decides the order of resources with the same name."""
        return self.held.reservation_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """A booking of a resource by a reservation, with the lease of the reservation.

    Only operators see it. The lease has the resource from ``start`` to ``end``. Cleaning lasts
    until ``busy_until``.
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
        """The id of the reservation, which decides the order of bookings with the same start."""
        return self.reservation_id
