"""Rooms for volumes in Cinder: private volume types with a quota each.

All that administrators alone may is done as our own user; volumes are made as the lease's user, by
its trust, and are its own like any other.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, ClassVar

from oslo_config.cfg import ConfigOpts

from climate.clock import Clock
from climate.core.errors import BackendUnavailable, NotFound
from climate.core.lease import Inventory, Lease
from climate.plugins import openstack
from climate.plugins.base import NotYet, do_all
from climate.plugins.cinder import CONFLICT, GONE, Cinder
from climate.plugins.cinder_types import as_room, as_type, capacity_of, described
from climate.plugins.rooms import Quota, Room, Volume, VolumeType
from climate.plugins.trusts import Trusts
from climate.plugins.volume_servers import VolumeServers

# The key of a volume's metadata under which is the reservation that it was made for.
MARK = "climate_reservation"
_IN_USE = 400


class CinderVolumes:
    """The VolumeCloud of ``[cinder]``."""

    needs_trust: ClassVar[bool] = True

    def __init__(self, conf: ConfigOpts, clock: Clock) -> None:
        """Prepare the clients; nothing is sent yet. Raises Misconfigured."""
        self._conf, self._clock = conf, clock
        session = openstack.make_session(conf)
        self.cinder = Cinder(conf, session)
        self._servers = VolumeServers(conf, session)
        self._trusts = Trusts(conf)
        self._patience = timedelta(seconds=conf["virtual:volume"].stuck_after)

    def _all_types(self) -> list[dict[str, Any]]:
        return self.cinder.fetch("types", "volume_types", is_public="None")

    def types(self) -> Sequence[VolumeType]:
        """Return all but rooms."""
        return [as_type(one) for one in self._all_types() if not as_room(one)]

    def refusal(self, volume_type: VolumeType) -> str | None:
        """Return why a type cannot be reserved, and what to do about it."""
        if volume_type.is_public:
            return (
                "it is public, so others would take what is reserved. Make another for this, with"
                " 'openstack volume type create --private'"
            )
        if users := self._access(volume_type.id):
            return (
                f"projects {', '.join(sorted(users))} can use it by themselves, and would take what"
                " is reserved. Take that from them with 'openstack volume type unset --project'"
            )
        if self.cinder.send("GET", f"types/{volume_type.id}/encryption").json():
            return "its volumes are encrypted, and how cannot be copied to other types"
        return None

    def _access(self, type_id: str) -> list[str]:
        answer = self.cinder.send("GET", f"types/{type_id}/os-volume-type-access", fine=(GONE,))
        found = answer.json().get("volume_type_access", ())
        return [one["project_id"] for one in found]

    def capacity(self, volume_type: VolumeType) -> Inventory | None:
        """Return what the pools that serve a type have together, as Cinder counts it."""
        query = {"detail": "True", "volume_type": volume_type.name}
        answer = self.cinder.send("GET", "scheduler-stats/get_pools", params=query)
        return capacity_of([one["capabilities"] for one in answer.json()["pools"]])

    def rooms(self) -> Sequence[Room]:
        """Return the types that say that they are rooms of ours."""
        return [room for one in self._all_types() if (room := as_room(one))]

    def make_room(self, reservation_id: str, base_id: str) -> Room:
        """Make a private type that is otherwise the same."""
        answer = self.cinder.send("GET", f"types/{base_id}", fine=(GONE,))
        if answer.status_code == GONE:
            raise NotFound(f"Volume type {base_id} could not be found")
        base = answer.json()["volume_type"]
        room = Room(id="", reservation_id=reservation_id, base_id=base_id)
        wanted = {
            "name": room.name,
            "description": described(room),
            "extra_specs": base["extra_specs"],
            "os-volume-type-access:is_public": False,
        }
        made = self.cinder.send("POST", "types", {"volume_type": wanted}).json()["volume_type"]
        return Room(id=made["id"], reservation_id=reservation_id, base_id=base_id)

    def users(self, room: Room) -> Sequence[str]:
        """Return who has access to its type."""
        return self._access(room.id)

    def open_room(self, room: Room, project_id: str) -> None:
        """Give the project access to its type, and take it from others."""
        self._share_qos(room)
        there = self._access(room.id)
        path = f"types/{room.id}"
        if project_id not in there:
            self.cinder.act(path, "addProjectAccess", CONFLICT, project=project_id)
        self._expel(room, [one for one in there if one != project_id])

    def _share_qos(self, room: Room) -> None:
        """Have the type the same quality of service, which it cannot be made with."""
        specs = [
            self.cinder.send("GET", f"types/{id_}", fine=(GONE,))
            .json()
            .get("volume_type", {})
            .get("qos_specs_id")
            for id_ in (room.base_id, room.id)
        ]
        if specs[0] and specs[0] != specs[1]:
            query = {"vol_type_id": room.id}
            self.cinder.send("GET", f"qos-specs/{specs[0]}/associate", params=query)

    def _expel(self, room: Room, projects: Sequence[str]) -> None:
        path, action = f"types/{room.id}", "removeProjectAccess"
        do_all(*(partial(self.cinder.act, path, action, project=one) for one in projects))

    def quota(self, room: Room, project_id: str) -> Quota:
        """Return the project's quota of its type."""
        return self._quota(room, project_id)[0]

    def _quota(self, room: Room, project_id: str) -> tuple[Quota, Quota]:
        """Return the project's quota of its type, and what it has of that."""
        path = f"os-quota-sets/{project_id}"
        found = self.cinder.send("GET", path, params={"usage": "True"}).json()["quota_set"]
        own = [found.get(f"{name}_{room.name}", {}) for name in ("volumes", "gigabytes")]
        used = (one.get("in_use", 0) + one.get("reserved", 0) for one in own)
        return Quota(*(one.get("limit", -1) for one in own)), Quota(*used)

    def set_quota(self, room: Room, project_id: str, quota: Quota) -> None:
        """Set the project's quota of its type, and no other; Cinder allows none below its use."""
        present, used = self._quota(room, project_id)
        possible = Quota(max(quota.volumes, used.volumes), max(quota.gigabytes, used.gigabytes))
        if present != possible:
            wanted = {
                f"volumes_{room.name}": possible.volumes,
                f"gigabytes_{room.name}": possible.gigabytes,
            }
            self.cinder.send("PUT", f"os-quota-sets/{project_id}", {"quota_set": wanted})

    def close_room(self, room: Room) -> None:
        """Take access to its type from everybody, and have it say that it is over."""
        self._expel(room, self._access(room.id))
        if not room.is_over:
            wanted = {"description": described(room, is_over=True)}
            self.cinder.send("PUT", f"types/{room.id}", {"volume_type": wanted}, fine=(GONE,))

    def delete_room(self, room: Room) -> None:
        """Delete its type. Cinder keeps a line of quota for each, which nobody sees."""
        answer = self.cinder.send("DELETE", f"types/{room.id}", fine=(GONE, _IN_USE))
        if answer.status_code == _IN_USE:
            raise NotYet(f"volume type {room.name} is in use, by a group or a volume")

    def volumes(self, type_id: str) -> Sequence[Volume]:
        """Return those of all projects."""
        answer = self.cinder.send("GET", f"types/{type_id}", fine=(GONE,))
        if answer.status_code == GONE:
            return []
        name = answer.json()["volume_type"]["name"]
        query = {"all_tenants": "True", "volume_type_id": type_id}
        found = self.cinder.fetch("volumes/detail", "volumes", **query)
        return [self._volume(one) for one in found if one["volume_type"] == name]

    def _volume(self, found: Mapping[str, Any]) -> Volume:
        changed = datetime.fromisoformat(found["updated_at"] or found["created_at"])
        return Volume(
            id=found["id"],
            size=found["size"],
            status=found["status"],
            reservation_id=found["metadata"].get(MARK),
            is_attached=bool(found["attachments"]),
            is_still=self._clock.now() - changed.replace(tzinfo=UTC) > self._patience,
        )

    def create(self, lease: Lease, room: Room, name: str, size: int) -> str:
        """Make one by the lease's trust."""
        if lease.trust_id is None:
            raise BackendUnavailable(f"lease {lease.id} has no trust to make volumes by")
        theirs = Cinder(self._conf, self._trusts.session(lease.trust_id))
        wanted = {
            "name": name,
            "size": size,
            "volume_type": room.name,
            "metadata": {MARK: room.reservation_id},
        }
        return str(theirs.send("POST", "volumes", {"volume": wanted}).json()["volume"]["id"])

    def detach(self, volume: Volume) -> None:
        """Have Nova take it from its servers, and Cinder from whatever else."""
        path = f"volumes/{volume.id}"
        answer = self.cinder.send("GET", path, fine=(GONE,))
        for one in answer.json().get("volume", {}).get("attachments", ()):
            on_server = one["server_id"] and self._servers.detach(one["server_id"], volume.id)
            if not on_server:
                self.cinder.send("DELETE", f"attachments/{one['attachment_id']}", fine=(GONE,))

    def delete(self, volume: Volume) -> None:
        """Delete it by force, with all snapshots; what hangs is set back before that."""
        path = f"volumes/{volume.id}"
        if volume.is_still and volume.status not in {"available", "error", "error_deleting"}:
            self.cinder.act(path, "os-reset_status", status="error", migration_status="none")
        query = {"force": "True", "cascade": "True"}
        self.cinder.send("DELETE", path, params=query, fine=(GONE,))

    def move(self, volume: Volume, base_id: str) -> None:
        """Retype it in its place."""
        path = f"volumes/{volume.id}"
        if volume.reservation_id:
            self.cinder.send("DELETE", f"{path}/metadata/{MARK}", fine=(GONE,))
        self.cinder.act(path, "os-retype", new_type=base_id, migration_policy="never")
