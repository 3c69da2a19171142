"""Reserved volume types: the capacity of a reservation, as a private volume type with a quota.

A reserved type is a copy of its base type. Only the reservation's project can use it, and only
within a quota. The class VolumeCloud is the interface of the drivers: for Cinder, and simulated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from climate.core.lease.model import Inventory, Lease

#: In place of the id of a default type: the project has none, so Cinder's own default applies.
NO_TYPE = "none"


def reserved_type_name(reservation_id: str) -> str:
    """Return the name of the private volume type of a reservation."""
    return f"reservation:{reservation_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeType:
    """A volume type that does not belong to a reservation. All projects can use a public type."""

    id: str
    name: str
    is_public: bool
    extra_specs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedType:
    """The private volume type of a reservation, a copy of the type ``base_id``.

    ``is_over`` means that the reservation has ended; climate then deletes or retypes its volumes.
    ``former_default`` is the id of the project's default type before this type, NO_TYPE if the
    project had none, and None if the reservation is not open.
    """

    id: str
    reservation_id: str
    base_id: str
    is_over: bool = False
    former_default: str | None = None

    @property
    def name(self) -> str:
        """The name of the volume type, by which users create volumes of it."""
        return reserved_type_name(self.reservation_id)


@dataclass(frozen=True, slots=True)
class Quota:
    """The quota of a project for a volume type: the number of volumes, and their GiB.

    The GiB include snapshots.
    """

    volumes: int
    gigabytes: int


NOTHING_MORE = Quota(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A volume of ``size`` GiB; ``status`` is Cinder's, such as ``in-use``.

    If climate created the volume, ``reservation_id`` is the id of the reservation. ``is_stuck``
    means that the volume has not changed for a long time. If such a volume has the status of an
    unfinished action, such as ``creating``, Cinder has probably given up the action.
    """

    id: str
    size: int
    status: str
    reservation_id: str | None = None
    is_attached: bool = False
    is_stuck: bool = False


class VolumeCloud(Protocol):
    """Interface of a driver for a cloud in which climate reserves volumes.

    A reserved type is the private volume type of a reservation. All methods except ``create`` are
    idempotent.
    """

    #: Whether ``create`` requires the trust of the lease.
    needs_trust: ClassVar[bool]

    def types(self) -> Sequence[VolumeType]:
        """Return all volume types, except the private types of reservations."""

    def refusal(self, volume_type: VolumeType) -> str | None:
        """Return why a volume type cannot be reserved; None if it can."""

    def capacity(self, volume_type: VolumeType) -> Inventory | None:
        """Return an inventory with the GiB for all volumes of a type together; None if unknown."""

    def reserved_types(self) -> Sequence[ReservedType]:
        """Return the private volume types of all reservations."""

    def create_reserved_type(self, reservation_id: str, base_id: str) -> ReservedType:
        """Create the private volume type of a reservation; no project has access to it yet.

        Raises NotFound if the base type ``base_id`` does not exist.
        """

    def users(self, reserved_type: ReservedType) -> Sequence[str]:
        """Return the ids of the projects that have access to a reserved type."""

    def open_reserved_type(self, reserved_type: ReservedType, project_id: str) -> None:
        """Give this project access to a reserved type, and revoke the access of all others."""

    def quota(self, reserved_type: ReservedType, project_id: str) -> Quota:
        """Return the project's quota for a reserved type; a negative number means no limit."""

    def set_quota(self, reserved_type: ReservedType, project_id: str, quota: Quota) -> None:
        """Set the project's quota for a reserved type to ``quota``, or to the usage if higher."""

    @property
    def has_default_types(self) -> bool:
        """Whether the cloud supports default volume types of projects."""

    def default_types(self) -> Mapping[str, str]:
        """Return the ids of default types by project id; projects without one are left out."""

    def set_default_type(self, project_id: str, type_id: str) -> None:
        """Set the default type of a project, or remove it if ``type_id`` is NO_TYPE.

        If the type or the project does not exist, also remove it.
        """

    def store_former_default(self, reserved_type: ReservedType, former: str | None) -> None:
        """Store ``former`` as ``former_default`` of a reserved type."""

    def close_reserved_type(self, reserved_type: ReservedType) -> None:
        """Revoke the access of all projects to a reserved type, and set its ``is_over``."""

    def delete_reserved_type(self, reserved_type: ReservedType) -> None:
        """Delete a reserved type, if it exists. Raises NotYet while volumes of the type exist."""

    def volumes(self, type_id: str) -> Sequence[Volume]:
        """Return all volumes of a volume type, reserved or not, in all projects."""

    def create(self, lease: Lease, reserved_type: ReservedType, name: str, size: int) -> str:
        """Create a volume of ``size`` GiB as the lease's user; return its id."""

    def detach(self, volume: Volume) -> None:
        """Begin to detach a volume from all servers; delete servers that boot from it."""

    def delete(self, volume: Volume) -> None:
        """Begin to delete a volume in any state, with its snapshots, if the volume exists."""

    def move(self, volume: Volume, base_id: str) -> None:
        """Begin to change the type of a volume to ``base_id``, without copying its data.

        Also remove climate's mark from the volume.
        """
