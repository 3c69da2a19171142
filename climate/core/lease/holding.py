"""Records of who holds which resource: the resources of a lease, the bookings of a resource."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from climate.core.lease.lifecycle import LeaseStatus
from climate.core.provisioning.host_state import HostState


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldResource:
    """A resource that a reservation holds or will hold in ``[start, busy_until)``.

    The window includes cleaning time. ``amounts`` is by resource class; it is empty if the
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
    """A resource of a lease, as its owner sees it.

    ``state`` and ``ready_at`` are about the preparation for this lease: ``ready_at`` is None until
    a provisioner has prepared the host. ``end`` is the end of the lease.
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
        """The id of the reservation, which decides the order of resources with equal names."""
        return self.held.reservation_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """A reservation's hold of a resource, with its lease, for operators.

    The lease has the resource from ``start`` to ``end``; cleaning lasts until ``busy_until``.
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
        """The id of the reservation, which decides the order of bookings with equal starts."""
        return self.reservation_id
