"""Reserved volume types: the capacity of a reservation, as a private volume type with a quota.

A reserved type is a copy of its base type that only the reservation's project can use, limited by
the project's quota for it. The plug-in calls a VolumeCloud: Cinder, or the simulated one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from climate.core.lease.model import Inventory, Lease


def reserved_type_name(reservation_id: str) -> str:
    """Return the name of a reservation's volume type."""
    return f"reservation:{reservation_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeType:
    """A volume type that is not a reserved type. All projects can use a public type."""

    id: str
    name: str
    is_public: bool
    extra_specs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedType:
    """The volume type of a reservation, a copy of the type ``base_id``.

    With ``is_over`` the reservation has ended, and climate deletes or retypes its volumes.
    """

    id: str
    reservation_id: str
    base_id: str
    is_over: bool = False

    @property
    def name(self) -> str:
        """The name of the volume type, with which users create volumes."""
        return reserved_type_name(self.reservation_id)


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits per project and volume type: the number of volumes, and GiB with snapshots."""

    volumes: int
    gigabytes: int


NOTHING_MORE = Quota(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A volume of ``size`` GiB; ``status`` is Cinder's, such as ``in-use``.

    ``reservation_id`` is the id of the reservation for which climate created the volume, or None.
    With ``is_stuck`` the volume has not changed for long: in a busy status, Cinder has probably
    stopped working on it.
    """

    id: str
    size: int
    status: str
    reservation_id: str | None = None
    is_attached: bool = False
    is_stuck: bool = False


class VolumeCloud(Protocol):
    """A cloud in which climate reserves volumes. All methods but ``create`` are idempotent."""

    #: Whether ``create`` requires the trust of the lease.
    needs_trust: bool

    def types(self) -> Sequence[VolumeType]:
        """Return all volume types but the reserved ones."""

    def refusal(self, volume_type: VolumeType) -> str | None:
        """Return why a type cannot be reserved, or None."""

    def capacity(self, volume_type: VolumeType) -> Inventory | None:
        """Return the GiB that all volumes of a type can have together, or None if unknown."""

    def reserved_types(self) -> Sequence[ReservedType]:
        """Return all reserved types."""

    def create_reserved_type(self, reservation_id: str, base_id: str) -> ReservedType:
        """Create the reserved type, closed to all projects. Raises NotFound for ``base_id``."""

    def users(self, reserved_type: ReservedType) -> Sequence[str]:
        """Return the ids of the projects with access to a reserved type."""

    def open_reserved_type(self, reserved_type: ReservedType, project_id: str) -> None:
        """Give this project access to the type, and revoke the access of all others."""

    def quota(self, reserved_type: ReservedType, project_id: str) -> Quota:
        """Return the project's quota for the type; a negative number means no limit."""

    def set_quota(self, reserved_type: ReservedType, project_id: str, quota: Quota) -> None:
        """Set the project's quota for the type, but no limit below the project's usage."""

    def close_reserved_type(self, reserved_type: ReservedType) -> None:
        """Revoke all projects' access to the type, and set its ``is_over`` in the cloud."""

    def delete_reserved_type(self, reserved_type: ReservedType) -> None:
        """Delete the type; succeeds if it is gone. Raises NotYet while it has volumes."""

    def volumes(self, type_id: str) -> Sequence[Volume]:
        """Return all volumes of a type in all projects; the type need not be a reserved type."""

    def create(self, lease: Lease, reserved_type: ReservedType, name: str, size: int) -> str:
        """Create a volume of ``size`` GiB as the lease's user; return its id."""

    def detach(self, volume: Volume) -> None:
        """Begin to detach a volume from all servers; delete servers that boot from it."""

    def delete(self, volume: Volume) -> None:
        """Begin to delete a volume in any state, with its snapshots; succeeds if it is gone."""

    def move(self, volume: Volume, base_id: str) -> None:
        """Remove climate's mark, and begin to retype a volume to ``base_id`` without copying it."""
