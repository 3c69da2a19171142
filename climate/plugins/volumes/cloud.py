"""Rooms: what a project may have of a volume type for as long as its reservation runs.

A room is a volume type of the reservation's own, like the one that it was reserved of, which the
project alone can use, and as far as its quota of that type goes. Volumes are in the room of their
type. The plugin of volumes says when; a VolumeCloud (Cinder, or the simulated one) knows how.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from climate.core.lease.model import Inventory, Lease

_PREFIX = "reservation:"


def room_name(reservation_id: str) -> str:
    """Return the name of the volume type that is a reservation's room."""
    return f"{_PREFIX}{reservation_id}"


def is_room(name: str) -> bool:
    """Tell whether a volume type's name is that of a room."""
    return name.startswith(_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeType:
    """A volume type of the cloud's that is no room; one that is public anybody can use."""

    id: str
    name: str
    is_public: bool
    extra_specs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The room of a reservation, of the volume type ``base_id``.

    One that ``is_over`` is for nobody any more, and empty soon.
    """

    id: str
    reservation_id: str
    base_id: str
    is_over: bool = False

    @property
    def name(self) -> str:
        """The volume type's name, by which users ask for volumes in it."""
        return room_name(self.reservation_id)


@dataclass(frozen=True, slots=True)
class Quota:
    """How many volumes there may be, and how many GiB they and their snapshots may have."""

    volumes: int
    gigabytes: int


NOTHING_MORE = Quota(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A volume of ``size`` GiB; one that was made for a reservation carries its mark.

    ``is_still`` says that nothing has happened to it for so long that whoever was at it is not
    any more.
    """

    id: str
    size: int
    status: str
    reservation_id: str | None = None
    is_attached: bool = False
    is_still: bool = False


class VolumeCloud(Protocol):
    """What must be known and done about volumes, however a cloud does it.

    All methods that change anything are idempotent, but for ``create``.
    """

    #: Whether volumes are made by the trust of the lease.
    needs_trust: bool

    def types(self) -> Sequence[VolumeType]:
        """Return the volume types that there are, rooms not among them."""

    def refusal(self, volume_type: VolumeType) -> str | None:
        """Return why a type cannot be reserved, None if it can be."""

    def capacity(self, volume_type: VolumeType) -> Inventory | None:
        """Return how many GiB volumes of a type can have in all, None if the cloud cannot say."""

    def rooms(self) -> Sequence[Room]:
        """Return all rooms."""

    def make_room(self, reservation_id: str, base_id: str) -> Room:
        """Make the room, which nobody can use yet; raises NotFound if there is no such type."""

    def users(self, room: Room) -> Sequence[str]:
        """Return the projects that can use a room."""

    def open_room(self, room: Room, project_id: str) -> None:
        """Let the project use it, and nobody else."""

    def quota(self, room: Room, project_id: str) -> Quota:
        """Return the project's quota in a room; negative numbers are no limit."""

    def set_quota(self, room: Room, project_id: str, quota: Quota) -> None:
        """Set it, if it is another, or to what is there where that is more."""

    def close_room(self, room: Room) -> None:
        """Let nobody make volumes in it any more; it is over."""

    def delete_room(self, room: Room) -> None:
        """Delete it; raises NotYet if there are volumes in it, fine if it is gone."""

    def volumes(self, type_id: str) -> Sequence[Volume]:
        """Return all volumes of a type, be it a room's."""

    def create(self, lease: Lease, room: Room, name: str, size: int) -> str:
        """Make a volume of ``size`` GiB in a room as the lease's user; return its id."""

    def detach(self, volume: Volume) -> None:
        """Begin to take it from all servers; one that has it as its root disk is deleted."""

    def delete(self, volume: Volume) -> None:
        """Begin to delete it with its snapshots, whatever it was at; fine if it is gone."""

    def move(self, volume: Volume, base_id: str) -> None:
        """Begin to make it one of the type ``base_id``, where it is and without our mark."""
