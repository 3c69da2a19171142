"""Cinder driver: reserved capacity for volumes is a private volume type with a quota.

climate acts as its own user where Cinder requires an administrator. It creates volumes as the user
of the lease, through a trust, so that the user owns them.
Every listing reads all pages and filters the names again, because a Cinder version that ignores
a filter would return the volumes of others.
"""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, ClassVar

from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from oslo_config.cfg import ConfigOpts
from requests import Response

from climate.clock import Clock
from climate.core.errors import BackendUnavailable, NotFound
from climate.core.lease.model import Inventory, Lease
from climate.plugins.base import NotYet, do_all
from climate.plugins.openstack import session as openstack_session
from climate.plugins.openstack.trusts import Trusts
from climate.plugins.volumes.cloud import Quota, Room, Volume, VolumeType, is_room

# The oldest version of Nova's API that tells an administrator a server's root device.
_NOVA_VERSION = "2.3"
_REFUSED, _GONE, _CONFLICT = 400, 404, 409


class VolumeServers:
    """The servers of ``[nova]``, as far as they have volumes."""

    def __init__(self, conf: ConfigOpts, session: Session) -> None:
        """Prepare the client; nothing is sent yet."""
        self._nova: Adapter = openstack_session.adapter(conf, session, "nova", _NOVA_VERSION)

    def detach(self, server_id: str, volume_id: str) -> bool:
        """Begin to take a volume from a server; tell whether there is such a server.

        One that starts from it cannot be without: it is deleted.
        """
        server = self._send("GET", f"/servers/{server_id}")
        if server.status_code == _GONE:
            return False
        path = f"/servers/{server_id}/os-volume_attachments/{volume_id}"
        found = self._send("GET", path)
        if found.status_code == _GONE:
            return False
        is_root = _device(found.json()["volumeAttachment"]) == server.json()["server"].get(
            "OS-EXT-SRV-ATTR:root_device_name"
        )
        self._send("DELETE", f"/servers/{server_id}" if is_root else path, _CONFLICT)
        return True

    def _send(self, method: str, path: str, *fine: int) -> Response:
        with openstack_session.answers():
            answer = self._nova.request(path, method, raise_exc=False)
        if answer.status_code < _REFUSED or answer.status_code in {_GONE, *fine}:
            return answer
        raise BackendUnavailable(f"Nova does not do it: {answer.status_code} {answer.text[:200]}")


def _device(attachment: dict[str, Any]) -> str:
    return str(attachment.get("device"))


_ROOM = re.compile(r"climate (?P<over>ended )?reservation:(?P<id>\S+) of (?P<base>\S+)", re.ASCII)


def described(room: Room, *, is_over: bool = False) -> str:
    """Return the description of a room's type, by which it is known as ours."""
    over = "ended " if is_over else ""
    return f"climate {over}reservation:{room.reservation_id} of {room.base_id}"


def as_room(found: Mapping[str, Any]) -> Room | None:
    """Return the room that a volume type is, None if it is somebody else's type."""
    said = _ROOM.fullmatch(found.get("description") or "")
    if said is None or not is_room(found["name"]):
        return None
    room = Room(
        id=found["id"], reservation_id=said["id"], base_id=said["base"], is_over=bool(said["over"])
    )
    return room if room.name == found["name"] else None


def as_type(found: Mapping[str, Any]) -> VolumeType:
    """Return a volume type."""
    specs = found.get("extra_specs") or {}
    return VolumeType(
        id=found["id"], name=found["name"], is_public=found["is_public"], extra_specs=specs
    )


def capacity_of(pools: Sequence[Mapping[str, Any]]) -> Inventory | None:
    """Return the GiB of pools together; None if there are none, or one does not know.

    Counted as Cinder's CapacityFilter does, thin pools with their over-subscription. A volume is in
    one pool.
    """
    sizes = [_size(pool) for pool in pools]
    known = [size for size in sizes if size is not None]
    if not known or len(known) < len(sizes):
        return None
    return Inventory(sum(known), max_unit=max(known))


def _size(pool: Mapping[str, Any]) -> int | None:
    try:
        total = float(pool["total_capacity_gb"])
        kept = float(pool.get("reserved_percentage") or 0)
        thin = str(pool.get("thin_provisioning_support")).lower() == "true"
        ratio = float(pool.get("max_over_subscription_ratio") or 1) if thin else 1.0
        return max(0, math.floor(total * (1 - kept / 100) * ratio))
    except (KeyError, TypeError, ValueError, OverflowError):  # infinite, unknown, auto
        return None


# The oldest that filters pools by volume type, deletes by force with all snapshots, and deletes
# attachments: OpenStack Queens has it.
_CINDER_VERSION = "3.44"
_PAGE = 500


class Cinder:
    """The Cinder of ``[cinder]``, for whoever a session is of."""

    def __init__(self, conf: ConfigOpts, session: Session) -> None:
        """Prepare the client; nothing is sent yet."""
        self._adapter: Adapter = openstack_session.adapter(conf, session, "cinder", _CINDER_VERSION)

    def fetch(self, what: str, key: str, **query: Any) -> list[dict[str, Any]]:
        """Return all there is of a kind, page by page, that the answers have under ``key``."""
        found: list[dict[str, Any]] = []
        while True:
            marker = {"marker": found[-1]["id"]} if found else {}
            answer = self.send("GET", what, params={**query, "limit": _PAGE, **marker})
            page = answer.json()[key]
            found += page
            if len(page) < _PAGE:
                return found

    def act(self, path: str, action: str, fine: int | None = None, **values: Any) -> None:
        """Have something done to what is at ``path``; ``fine`` is a status that is no refusal."""
        self.send("POST", f"{path}/action", {action: values}, fine=(_GONE, fine or _GONE))

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        fine: tuple[int, ...] = (),
    ) -> Response:
        """Return Cinder's answer; raises BackendUnavailable with its own words if it refuses.

        Statuses that are ``fine`` are no refusals.
        """
        sent = {} if body is None else {"json": body}
        with openstack_session.answers("Cinder"):
            answer = self._adapter.request(
                f"/{path}", method, params=params, raise_exc=False, **sent
            )
        if answer.status_code < _REFUSED or answer.status_code in fine:
            return answer
        raise BackendUnavailable(f"Cinder does not do it: {_reason(answer)}")


def _reason(answer: Response) -> str:
    """Return what an answer says in words, or else its status."""
    try:
        [fault] = answer.json().values()
        return str(fault["message"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return f"{answer.status_code} {answer.reason}"


# The key of a volume's metadata under which is the reservation that it was made for.
MARK = "climate_reservation"
_IN_USE = 400


class CinderVolumes:
    """The VolumeCloud of ``[cinder]``."""

    needs_trust: ClassVar[bool] = True

    def __init__(self, conf: ConfigOpts, clock: Clock) -> None:
        """Prepare the clients; nothing is sent yet. Raises Misconfigured."""
        self._conf, self._clock = conf, clock
        session = openstack_session.make_session(conf)
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
        answer = self.cinder.send("GET", f"types/{type_id}/os-volume-type-access", fine=(_GONE,))
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
        answer = self.cinder.send("GET", f"types/{base_id}", fine=(_GONE,))
        if answer.status_code == _GONE:
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
            self.cinder.act(path, "addProjectAccess", _CONFLICT, project=project_id)
        self._expel(room, [one for one in there if one != project_id])

    def _share_qos(self, room: Room) -> None:
        """Have the type the same quality of service, which it cannot be made with."""
        specs = [
            self.cinder.send("GET", f"types/{id_}", fine=(_GONE,))
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
            self.cinder.send("PUT", f"types/{room.id}", {"volume_type": wanted}, fine=(_GONE,))

    def delete_room(self, room: Room) -> None:
        """Delete its type. Cinder keeps a line of quota for each, which nobody sees."""
        answer = self.cinder.send("DELETE", f"types/{room.id}", fine=(_GONE, _IN_USE))
        if answer.status_code == _IN_USE:
            raise NotYet(f"volume type {room.name} is in use, by a group or a volume")

    def volumes(self, type_id: str) -> Sequence[Volume]:
        """Return those of all projects."""
        answer = self.cinder.send("GET", f"types/{type_id}", fine=(_GONE,))
        if answer.status_code == _GONE:
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
        answer = self.cinder.send("GET", path, fine=(_GONE,))
        for one in answer.json().get("volume", {}).get("attachments", ()):
            on_server = one["server_id"] and self._servers.detach(one["server_id"], volume.id)
            if not on_server:
                self.cinder.send("DELETE", f"attachments/{one['attachment_id']}", fine=(_GONE,))

    def delete(self, volume: Volume) -> None:
        """Delete it by force, with all snapshots; what hangs is set back before that."""
        path = f"volumes/{volume.id}"
        if volume.is_still and volume.status not in {"available", "error", "error_deleting"}:
            self.cinder.act(path, "os-reset_status", status="error", migration_status="none")
        query = {"force": "True", "cascade": "True"}
        self.cinder.send("DELETE", path, params=query, fine=(_GONE,))

    def move(self, volume: Volume, base_id: str) -> None:
        """Retype it in its place."""
        path = f"volumes/{volume.id}"
        if volume.reservation_id:
            self.cinder.send("DELETE", f"{path}/metadata/{MARK}", fine=(_GONE,))
        self.cinder.act(path, "os-retype", new_type=base_id, migration_policy="never")
