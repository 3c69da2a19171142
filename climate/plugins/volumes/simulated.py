"""Simulated volumes, for demonstrations and tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from oslo_config.cfg import ConfigOpts

from climate.core.errors import NotFound
from climate.core.lease.model import Inventory, Lease
from climate.plugins.base import NotYet
from climate.plugins.simulated_journal import Journal, SimulatedFailure
from climate.plugins.volumes.cloud import NO_TYPE, Quota, ReservedType, Volume, VolumeType

# The capacity of the second type is unknown; the third is public.
TYPES = {
    each.id: each
    for each in (
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
    """The present simulated volumes and their types.

    ``volumes`` maps the id of a volume to a pair: the id of its type, and the volume.
    """

    reserved_types: dict[str, ReservedType] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=dict)
    quotas: dict[tuple[str, str], Quota] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    volumes: dict[str, tuple[str, Volume]] = field(default_factory=dict)


class SimulatedVolumes:
    """A VolumeCloud (driver for volumes) that computes its state from its journal.

    It has the volume types in ``TYPES``.
    """

    needs_trust: ClassVar[bool] = False
    has_default_types: ClassVar[bool] = True

    def __init__(self, conf: ConfigOpts) -> None:
        self.journal = Journal(conf)

    def types(self) -> Sequence[VolumeType]:
        return list(TYPES.values())

    def refusal(self, volume_type: VolumeType) -> str | None:
        return "it is public" if volume_type.is_public else None

    def capacity(self, volume_type: VolumeType) -> Inventory | None:
        return _GIGABYTES.get(volume_type.id)

    def reserved_types(self) -> Sequence[ReservedType]:
        return list(self._present().reserved_types.values())

    def create_reserved_type(self, reservation_id: str, base_id: str) -> ReservedType:
        if base_id not in TYPES:
            raise NotFound(f"Volume type {base_id} could not be found")
        self._act("make_room", reservation_id, base=base_id)
        return self._present().reserved_types[reservation_id]

    def users(self, reserved_type: ReservedType) -> Sequence[str]:
        user = self._present().users.get(reserved_type.id)
        return [user] if user else []

    def open_reserved_type(self, reserved_type: ReservedType, project_id: str) -> None:
        if self.users(reserved_type) != [project_id]:
            self._act("open_room", reserved_type.id, project=project_id)

    def quota(self, reserved_type: ReservedType, project_id: str) -> Quota:
        return self._present().quotas.get((reserved_type.id, project_id), Quota(-1, -1))

    def set_quota(self, reserved_type: ReservedType, project_id: str, quota: Quota) -> None:
        if self.quota(reserved_type, project_id) != quota:
            values = {"volumes": str(quota.volumes), "gigabytes": str(quota.gigabytes)}
            self._act("set_room_quota", reserved_type.id, project=project_id, **values)

    def default_types(self) -> Mapping[str, str]:
        defaults = self._present().defaults
        return {project: type_ for project, type_ in defaults.items() if type_ != NO_TYPE}

    def set_default_type(self, project_id: str, type_id: str) -> None:
        known = {*TYPES, *self._present().reserved_types}
        present = type_id if type_id in known else NO_TYPE
        if self.default_types().get(project_id, NO_TYPE) != present:
            self.journal.act("set_default_type", project=project_id, type=present)

    def store_former_default(self, reserved_type: ReservedType, former: str | None) -> None:
        if self._present().reserved_types[reserved_type.id].former_default != former:
            self._act("store_former_default", reserved_type.id, former=former or "")

    def close_reserved_type(self, reserved_type: ReservedType) -> None:
        present = self._present()
        if (
            reserved_type.id in present.users
            or not present.reserved_types[reserved_type.id].is_over
        ):
            self._act("close_room", reserved_type.id)

    def delete_reserved_type(self, reserved_type: ReservedType) -> None:
        if self.volumes(reserved_type.id):
            raise NotYet(f"there are volumes in {reserved_type.name}")
        if reserved_type.id in self.default_types().values():
            raise NotYet(f"{reserved_type.name} is the default type of a project")
        if reserved_type.id in self._present().reserved_types:
            self._act("delete_room", reserved_type.id)

    def volumes(self, type_id: str) -> Sequence[Volume]:
        return [each for type_, each in self._present().volumes.values() if type_ == type_id]

    def create(self, lease: Lease, reserved_type: ReservedType, _name: str, size: int) -> str:
        return self.make(reserved_type, lease.project_id, size, reserved_type.reservation_id)

    def make(
        self, reserved_type: ReservedType, project_id: str, size: int, reservation_id: str = ""
    ) -> str:
        """Create a volume of ``size`` GiB, as users can; return its id.

        If ``reservation_id`` is set, the volume is marked as created by climate.
        Raises SimulatedFailure if the quota is exceeded, or the project has no access to the type.
        """
        present = self._present()
        quota, volumes = (
            present.quotas[reserved_type.id, project_id],
            self.volumes(reserved_type.id),
        )
        gigabytes = sum(volume.size for volume in volumes) + size
        if len(volumes) >= quota.volumes or gigabytes > quota.gigabytes:
            raise SimulatedFailure(
                f"{reserved_type.name} has no quota for another volume of {size} GiB"
            )
        if present.users.get(reserved_type.id) != project_id:
            raise SimulatedFailure(f"project {project_id} cannot use {reserved_type.name}")
        id_ = f"volume-{len(self.journal.effects())}"
        self._act("create_volume", reserved_type.id, id=id_, size=str(size), mark=reservation_id)
        return id_

    def set_status(self, volume_id: str, status: str) -> None:
        """Set Cinder's status of a volume; ``in-use`` attaches it to a server."""
        self.journal.act("set_volume", id=volume_id, status=status)

    def detach(self, volume: Volume) -> None:
        self.set_status(volume.id, "available")

    def delete(self, volume: Volume) -> None:
        if volume.id in self._present().volumes:
            self.journal.act("delete_volume", id=volume.id)

    def move(self, volume: Volume, base_id: str) -> None:
        self.journal.act("move_volume", id=volume.id, type=base_id)

    def _act(self, effect: str, type_id: str, **details: str) -> None:
        self.journal.act(effect, room=type_id, **details)

    def _present(self) -> _Present:
        present = _Present()
        for effect in self.journal.effects():
            if "room" in effect:
                _fold_reserved_type(present, effect["room"], effect)
            elif effect["effect"] == "set_default_type":
                present.defaults[effect["project"]] = effect["type"]
            elif effect["effect"].endswith("_volume"):
                _fold_volume(present, effect["id"], effect)
        return present


def _fold_reserved_type(present: _Present, id_: str, effect: Mapping[str, Any]) -> None:
    match effect["effect"]:
        case "make_room":
            reserved_type = ReservedType(id=id_, reservation_id=id_, base_id=effect["base"])
            present.reserved_types.setdefault(id_, reserved_type)
        case "open_room":
            present.users[id_] = effect["project"]
        case "set_room_quota":
            quota = Quota(int(effect["volumes"]), int(effect["gigabytes"]))
            present.quotas[id_, effect["project"]] = quota
        case "store_former_default":
            changed = replace(present.reserved_types[id_], former_default=effect["former"] or None)
            present.reserved_types[id_] = changed
        case "close_room":
            present.users.pop(id_, None)
            present.reserved_types[id_] = replace(present.reserved_types[id_], is_over=True)
        case "delete_room":
            present.reserved_types.pop(id_, None)
            present.quotas = {key: quota for key, quota in present.quotas.items() if key[0] != id_}
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
