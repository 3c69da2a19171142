"""Volumes in the cloud of made-up hosts: for demos and tests, never for use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from oslo_config.cfg import ConfigOpts

from climate.core.errors import NotFound
from climate.core.lease.model import Inventory, Lease
from climate.plugins.base import NotYet
from climate.plugins.simulated_journal import Journal, SimulatedFailure
from climate.plugins.volumes.cloud import Quota, Room, Volume, VolumeType

# Of the second nobody knows how much there is; the third is open to all.
TYPES = {
    one.id: one
    for one in (
        VolumeType(
            id="sim-gold", name="gold", is_public=False, extra_specs={"volume_backend_name": "ssd"}
        ),
        VolumeType(
            id="sim-silver",
            name="silver",
            is_public=False,
            extra_specs={"volume_backend_name": "hdd"},
        ),
        VolumeType(id="sim-standard", name="standard", is_public=True),
    )
}
_GIGABYTES = {"sim-gold": Inventory(1000, max_unit=400)}


@dataclass(slots=True)
class _Present:
    """What the effects so far add up to; volumes by id, each with its type."""

    rooms: dict[str, Room] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=dict)
    quotas: dict[tuple[str, str], Quota] = field(default_factory=dict)
    volumes: dict[str, tuple[str, Volume]] = field(default_factory=dict)


class SimulatedVolumes:
    """The types gold and silver, for reservations (see VolumeCloud for the methods)."""

    needs_trust: ClassVar[bool] = False

    def __init__(self, conf: ConfigOpts) -> None:
        """Share the settings, and so the journal, with the hosts' cloud."""
        self.world = Journal(conf)

    def types(self) -> Sequence[VolumeType]:
        """Return the three of them."""
        return list(TYPES.values())

    def refusal(self, volume_type: VolumeType) -> str | None:
        """Refuse the third."""
        return "it is public" if volume_type.is_public else None

    def capacity(self, volume_type: VolumeType) -> Inventory | None:
        """Return what gold has."""
        return _GIGABYTES.get(volume_type.id)

    def rooms(self) -> Sequence[Room]:
        """Return all rooms."""
        return list(self._present().rooms.values())

    def make_room(self, reservation_id: str, base_id: str) -> Room:
        """Write down that it is there; its id is that of the reservation."""
        if base_id not in TYPES:
            raise NotFound(f"Volume type {base_id} could not be found")
        self._act("make_room", reservation_id, base=base_id)
        return self._present().rooms[reservation_id]

    def users(self, room: Room) -> Sequence[str]:
        """Return the only one that can use it, if any."""
        user = self._present().users.get(room.id)
        return [user] if user else []

    def open_room(self, room: Room, project_id: str) -> None:
        """Write down who can use it, unless it is so."""
        if self.users(room) != [project_id]:
            self._act("open_room", room.id, project=project_id)

    def quota(self, room: Room, project_id: str) -> Quota:
        """Return what was written down last, no limit before that."""
        return self._present().quotas.get((room.id, project_id), Quota(-1, -1))

    def set_quota(self, room: Room, project_id: str, quota: Quota) -> None:
        """Write it down, unless it is so."""
        if self.quota(room, project_id) != quota:
            told = {"volumes": str(quota.volumes), "gigabytes": str(quota.gigabytes)}
            self._act("set_room_quota", room.id, project=project_id, **told)

    def close_room(self, room: Room) -> None:
        """Write down that it is for nobody, unless it is so."""
        present = self._present()
        if room.id in present.users or not present.rooms[room.id].is_over:
            self._act("close_room", room.id)

    def delete_room(self, room: Room) -> None:
        """Write down that it is gone, unless it is so."""
        if self.volumes(room.id):
            raise NotYet(f"there are volumes in {room.name}")
        if room.id in self._present().rooms:
            self._act("delete_room", room.id)

    def volumes(self, type_id: str) -> Sequence[Volume]:
        """Return those of a type."""
        return [one for type_, one in self._present().volumes.values() if type_ == type_id]

    def create(self, lease: Lease, room: Room, _name: str, size: int) -> str:
        """Make one for the reservation."""
        return self.make(room, lease.project_id, size, room.reservation_id)

    def make(self, room: Room, project_id: str, size: int, reservation_id: str = "") -> str:
        """Make one as Cinder would: fails beyond the quota. Users may do so, too."""
        present = self._present()
        quota, there = present.quotas[room.id, project_id], self.volumes(room.id)
        gigabytes = sum(one.size for one in there) + size
        if len(there) >= quota.volumes or gigabytes > quota.gigabytes:
            raise SimulatedFailure(f"{room.name} has no room for another volume of {size} GiB")
        if present.users.get(room.id) != project_id:
            raise SimulatedFailure(f"project {project_id} cannot use {room.name}")
        id_ = f"volume-{len(self.world.effects())}"
        self._act("create_volume", room.id, id=id_, size=str(size), mark=reservation_id)
        return id_

    def attach(self, volume_id: str) -> None:
        """Put it at a server: what a user of the cloud would do."""
        self._set(volume_id, "in-use")

    def set_status(self, volume_id: str, status: str) -> None:
        """Have it in a state, as clouds do."""
        self._set(volume_id, status)

    def _set(self, volume_id: str, status: str) -> None:
        self.world.act("set_volume", id=volume_id, status=status)

    def detach(self, volume: Volume) -> None:
        """Take it from its server."""
        self._set(volume.id, "available")

    def delete(self, volume: Volume) -> None:
        """Delete it, wherever it is in use."""
        if volume.id in self._present().volumes:
            self.world.act("delete_volume", id=volume.id)

    def move(self, volume: Volume, base_id: str) -> None:
        """Write down that it is of another type."""
        self.world.act("move_volume", id=volume.id, type=base_id)

    def _act(self, effect: str, room_id: str, **details: str) -> None:
        self.world.act(effect, room=room_id, **details)

    def _present(self) -> _Present:
        present = _Present()
        for effect in self.world.effects():
            if "room" in effect:
                _fold_room(present, effect["room"], effect)
            elif effect["effect"].endswith("_volume"):
                _fold_volume(present, effect["id"], effect)
        return present


def _fold_room(present: _Present, id_: str, effect: Mapping[str, Any]) -> None:
    match effect["effect"]:
        case "make_room":
            made = Room(id=id_, reservation_id=id_, base_id=effect["base"])
            present.rooms.setdefault(id_, made)
        case "open_room":
            present.users[id_] = effect["project"]
        case "set_room_quota":
            quota = Quota(int(effect["volumes"]), int(effect["gigabytes"]))
            present.quotas[id_, effect["project"]] = quota
        case "close_room":
            present.users.pop(id_, None)
            present.rooms[id_] = replace(present.rooms[id_], is_over=True)
        case "delete_room":
            present.rooms.pop(id_, None)
            present.quotas = {key: one for key, one in present.quotas.items() if key[0] != id_}
        case "create_volume":
            volume = Volume(
                id=effect["id"],
                size=int(effect["size"]),
                status="available",
                reservation_id=effect["mark"] or None,
            )
            present.volumes[volume.id] = (id_, volume)


def _fold_volume(present: _Present, id_: str, effect: Mapping[str, Any]) -> None:
    if id_ not in present.volumes:
        return
    type_id, volume = present.volumes[id_]
    match effect["effect"]:
        case "set_volume":
            status = effect["status"]
            changed = replace(volume, status=status, is_attached=status == "in-use")
            present.volumes[id_] = (type_id, changed)
        case "move_volume":
            present.volumes[id_] = (effect["type"], replace(volume, reservation_id=None))
        case "delete_volume":
            del present.volumes[id_]
