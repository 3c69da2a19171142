"""The driver for volumes on Cinder: a reservation has a private volume type with a quota.

climate acts as its own user where Cinder requires an administrator. It creates volumes as the user
of the lease, through a trust, so that the user owns them. It reads lists page by page. If climate
requests the volumes of one type, some versions of Cinder return those of all types. Therefore
climate checks the type of each listed volume.
"""

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, ClassVar

from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from novaclient import exceptions as nova_errors
from oslo_config.cfg import ConfigOpts
from requests import Response

from climate.clock import Clock
from climate.core.errors import BackendUnavailable, NotFound
from climate.core.lease.model import Inventory, Lease
from climate.plugins.base import NotYet, run_all
from climate.plugins.openstack import session as openstack_session
from climate.plugins.openstack.trusts import Trusts
from climate.plugins.volumes.cloud import NO_TYPE, Quota, ReservedType, Volume, VolumeType

_GONE, _NOT_ACCEPTABLE, _CONFLICT = 404, 406, 409
# Nova shows it to administrators only.
_ROOT_DEVICE = "OS-EXT-SRV-ATTR:root_device_name"


class VolumeServers:
    """Detaches volumes from servers, through Nova, as the section ``[nova]`` configures it."""

    def __init__(self, conf: ConfigOpts, session: Session) -> None:
        self._nova = openstack_session.nova_client(conf, session)

    def detach(self, server_id: str, volume_id: str) -> bool:
        """Begin to detach a volume from a server; return False if the volume was not attached.

        If the server boots from the volume, begin to delete the server instead.
        """
        with openstack_session.answers():
            try:
                server = self._nova.servers.get(server_id)
                attachment = self._nova.volumes.get_server_volume(server_id, volume_id)
            except nova_errors.NotFound:
                return False
            with suppress(nova_errors.NotFound, nova_errors.Conflict):
                if str(attachment.device) == getattr(server, _ROOT_DEVICE, None):
                    self._nova.servers.delete(server_id)
                else:
                    self._nova.volumes.delete_server_volume(server_id, volume_id)
        return True


_RESERVED_TYPE = re.compile(
    r"climate (?P<over>ended )?reservation:(?P<id>\S+)"
    r"(?: in place of default (?P<former>\S+))? of (?P<base>\S+)",
    re.ASCII,
)


def reserved_type_description(reserved_type: ReservedType) -> str:
    """Return the description by which climate recognizes the volume type of a reservation."""
    former = reserved_type.former_default
    over = "ended " if reserved_type.is_over else ""
    default = f" in place of default {former}" if former else ""
    return (
        f"climate {over}reservation:{reserved_type.reservation_id}{default}"
        f" of {reserved_type.base_id}"
    )


def parse_reserved_type(record: Mapping[str, Any]) -> ReservedType | None:
    """Return the reserved type in Cinder's record of a volume type; None for other types.

    A reserved type is the private volume type of a reservation.
    """
    match = _RESERVED_TYPE.fullmatch(record.get("description") or "")
    if match is None:
        return None
    reserved_type = ReservedType(
        id=record["id"],
        reservation_id=match["id"],
        base_id=match["base"],
        is_over=bool(match["over"]),
        former_default=match["former"],
    )
    return reserved_type if reserved_type.name == record["name"] else None


def parse_type(record: Mapping[str, Any]) -> VolumeType:
    """Parse Cinder's record of a volume type."""
    specs = record.get("extra_specs") or {}
    return VolumeType(
        id=record["id"], name=record["name"], is_public=record["is_public"], extra_specs=specs
    )


def capacity_of(pools: Sequence[Mapping[str, Any]]) -> Inventory | None:
    """Return an inventory with the GiB of all storage pools together.

    Returns None if there is no pool, or if the size of a pool is unknown. Sizes are computed as in
    Cinder's CapacityFilter, with the over-subscription of thin pools. ``max_unit`` is the size of
    the largest pool, because a volume cannot span pools.
    """
    sizes = [_size(pool) for pool in pools]
    known = [size for size in sizes if size is not None]
    if not known or len(known) < len(sizes):
        return None
    return Inventory(sum(known), max_unit=max(known))


def _size(pool: Mapping[str, Any]) -> int | None:
    try:
        total = float(pool["total_capacity_gb"])
        reserved = float(pool.get("reserved_percentage") or 0)
        thin = str(pool.get("thin_provisioning_support")).lower() == "true"
        ratio = float(pool.get("max_over_subscription_ratio") or 1) if thin else 1.0
        return max(0, math.floor(total * (1 - reserved / 100) * ratio))
    except (KeyError, TypeError, ValueError, OverflowError):  # infinite, unknown, auto
        return None


# The oldest version that filters pools by volume type, deletes by force with all snapshots, and
# deletes attachments (OpenStack Queens).
_CINDER_VERSION = "3.44"
# The version with default types of projects (OpenStack Wallaby).
_DEFAULT_TYPES_VERSION = "3.62"
_PAGE = 500


class Cinder:
    """A client for Cinder, which sends requests as the user of ``session``.

    The section ``[cinder]`` configures the service.
    """

    def __init__(self, conf: ConfigOpts, session: Session, version: str = _CINDER_VERSION) -> None:
        self._adapter: Adapter = openstack_session.adapter(conf, session, "cinder", version)

    def fetch(self, path: str, key: str, **query: Any) -> list[dict[str, Any]]:
        """Return the objects of all pages at ``path``; each answer has a list under ``key``."""
        records: list[dict[str, Any]] = []
        while True:
            marker = {"marker": records[-1]["id"]} if records else {}
            answer = self.send("GET", path, params={**query, "limit": _PAGE, **marker})
            page = answer.json()[key]
            records += page
            if len(page) < _PAGE:
                return records

    def act(self, path: str, action: str, allowed: int | None = None, **values: Any) -> None:
        """Run an action on the object at ``path``.

        The statuses 404 and ``allowed`` are no errors.
        """
        self.send("POST", f"{path}/action", {action: values}, allowed=(_GONE, allowed or _GONE))

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        allowed: tuple[int, ...] = (),
    ) -> Response:
        """Send a request to Cinder, and return the response.

        ``body`` is sent as JSON. HTTP statuses from 400 on are errors, except those in ``allowed``.
        For an error, raises BackendUnavailable with Cinder's reason.
        """
        return openstack_session.send(
            self._adapter, "Cinder", method, f"/{path}", allowed=allowed, json=body, params=params
        )


# The key in a volume's metadata for the id of the reservation for which climate created it.
MARK = "climate_reservation"
_BAD_REQUEST = 400


class CinderVolumes:
    """The VolumeCloud for Cinder, as the section ``[cinder]`` configures it."""

    needs_trust: ClassVar[bool] = True

    def __init__(self, conf: ConfigOpts, clock: Clock) -> None:
        self._conf, self._clock = conf, clock
        session = openstack_session.make_session(conf)
        self.cinder = Cinder(conf, session)
        self._defaults = Cinder(conf, session, _DEFAULT_TYPES_VERSION)
        self._servers = VolumeServers(conf, session)
        self._trusts = Trusts(conf)
        self._patience = timedelta(seconds=conf["virtual:volume"].stuck_after)

    def _all_types(self) -> list[dict[str, Any]]:
        return self.cinder.fetch("types", "volume_types", is_public="None")

    def types(self) -> Sequence[VolumeType]:
        return [parse_type(each) for each in self._all_types() if not parse_reserved_type(each)]

    def refusal(self, volume_type: VolumeType) -> str | None:
        if volume_type.is_public:
            return (
                "it is public, so other projects could use the reserved capacity. Create a private"
                " one with 'openstack volume type create --private'"
            )
        if users := self._access(volume_type.id):
            return (
                f"projects {', '.join(sorted(users))} have access to it, and could use the reserved"
                " capacity. Revoke it with 'openstack volume type unset --project'"
            )
        if self.cinder.send("GET", f"types/{volume_type.id}/encryption").json():
            return (
                "its volumes are encrypted, and climate cannot copy the encryption to other types"
            )
        return None

    def _access(self, type_id: str) -> list[str]:
        answer = self.cinder.send("GET", f"types/{type_id}/os-volume-type-access", allowed=(_GONE,))
        accesses = answer.json().get("volume_type_access", ())
        return [access["project_id"] for access in accesses]

    def capacity(self, volume_type: VolumeType) -> Inventory | None:
        query = {"detail": "True", "volume_type": volume_type.name}
        answer = self.cinder.send("GET", "scheduler-stats/get_pools", params=query)
        return capacity_of([pool["capabilities"] for pool in answer.json()["pools"]])

    def reserved_types(self) -> Sequence[ReservedType]:
        return [
            reserved_type
            for record in self._all_types()
            if (reserved_type := parse_reserved_type(record))
        ]

    def create_reserved_type(self, reservation_id: str, base_id: str) -> ReservedType:
        answer = self.cinder.send("GET", f"types/{base_id}", allowed=(_GONE,))
        if answer.status_code == _GONE:
            raise NotFound(f"Volume type {base_id} could not be found")
        base = answer.json()["volume_type"]
        reserved_type = ReservedType(id="", reservation_id=reservation_id, base_id=base_id)
        values = {
            "name": reserved_type.name,
            "description": reserved_type_description(reserved_type),
            "extra_specs": base["extra_specs"],
            "os-volume-type-access:is_public": False,
        }
        record = self.cinder.send("POST", "types", {"volume_type": values}).json()["volume_type"]
        return ReservedType(id=record["id"], reservation_id=reservation_id, base_id=base_id)

    def users(self, reserved_type: ReservedType) -> Sequence[str]:
        return self._access(reserved_type.id)

    def open_reserved_type(self, reserved_type: ReservedType, project_id: str) -> None:
        self._share_qos(reserved_type)
        projects = self._access(reserved_type.id)
        path = f"types/{reserved_type.id}"
        if project_id not in projects:
            self.cinder.act(path, "addProjectAccess", _CONFLICT, project=project_id)
        self._revoke(reserved_type, [other for other in projects if other != project_id])

    def _share_qos(self, reserved_type: ReservedType) -> None:
        """Associate the QoS specs of the base type with the reserved type.

        Cinder cannot do this when it creates a type.
        """
        specs = [
            self.cinder.send("GET", f"types/{id_}", allowed=(_GONE,))
            .json()
            .get("volume_type", {})
            .get("qos_specs_id")
            for id_ in (reserved_type.base_id, reserved_type.id)
        ]
        if specs[0] and specs[0] != specs[1]:
            query = {"vol_type_id": reserved_type.id}
            self.cinder.send("GET", f"qos-specs/{specs[0]}/associate", params=query)

    def _revoke(self, reserved_type: ReservedType, projects: Sequence[str]) -> None:
        path, action = f"types/{reserved_type.id}", "removeProjectAccess"
        run_all(*(partial(self.cinder.act, path, action, project=project) for project in projects))

    def quota(self, reserved_type: ReservedType, project_id: str) -> Quota:
        return self._quota(reserved_type, project_id)[0]

    def _quota(self, reserved_type: ReservedType, project_id: str) -> tuple[Quota, Quota]:
        """Return the project's quota for the volume type, and how much of it the project uses."""
        path = f"os-quota-sets/{project_id}"
        quotas = self.cinder.send("GET", path, params={"usage": "True"}).json()["quota_set"]
        names = [f"{name}_{reserved_type.name}" for name in ("volumes", "gigabytes")]
        records = [quotas.get(name, {}) for name in names]
        used = (record.get("in_use", 0) + record.get("reserved", 0) for record in records)
        return Quota(*(record.get("limit", -1) for record in records)), Quota(*used)

    def set_quota(self, reserved_type: ReservedType, project_id: str, quota: Quota) -> None:
        present, used = self._quota(reserved_type, project_id)
        possible = Quota(max(quota.volumes, used.volumes), max(quota.gigabytes, used.gigabytes))
        if present != possible:
            values = {
                f"volumes_{reserved_type.name}": possible.volumes,
                f"gigabytes_{reserved_type.name}": possible.gigabytes,
            }
            self.cinder.send("PUT", f"os-quota-sets/{project_id}", {"quota_set": values})

    @property
    def has_default_types(self) -> bool:
        """Implement VolumeCloud.has_default_types."""
        answer = self._defaults.send("GET", "default-types", allowed=(_NOT_ACCEPTABLE,))
        return answer.status_code != _NOT_ACCEPTABLE

    def default_types(self) -> Mapping[str, str]:
        """Return the ids of default types by project id.

        Cinder's answer for a single project is the same whether the project has no default type or
        does not exist any more, so this reads the list of all projects.
        """
        records = self._defaults.send("GET", "default-types").json()["default_types"]
        return {record["project_id"]: record["volume_type_id"] for record in records}

    def set_default_type(self, project_id: str, type_id: str) -> None:
        path, body = f"default-types/{project_id}", {"default_type": {"volume_type": type_id}}
        missing = (_BAD_REQUEST, _GONE)
        if type_id != NO_TYPE:
            answer = self._defaults.send("PUT", path, body, allowed=missing)
            if answer.status_code not in missing:
                return
        self._defaults.send("DELETE", path, allowed=(_GONE,))

    def store_former_default(self, reserved_type: ReservedType, former: str | None) -> None:
        self._describe(replace(reserved_type, former_default=former))

    def _describe(self, reserved_type: ReservedType) -> None:
        """Write the description of a reserved type; Cinder allows it while the type is in use."""
        values = {"description": reserved_type_description(reserved_type)}
        path = f"types/{reserved_type.id}"
        self.cinder.send("PUT", path, {"volume_type": values}, allowed=(_GONE,))

    def close_reserved_type(self, reserved_type: ReservedType) -> None:
        self._revoke(reserved_type, self._access(reserved_type.id))
        if not reserved_type.is_over:
            self._describe(replace(reserved_type, is_over=True))

    def delete_reserved_type(self, reserved_type: ReservedType) -> None:
        """Delete the volume type. Its quota stays in Cinder's database, which is harmless."""
        answer = self.cinder.send(
            "DELETE", f"types/{reserved_type.id}", allowed=(_GONE, _BAD_REQUEST)
        )
        if answer.status_code == _BAD_REQUEST:
            raise NotYet(
                f"volume type {reserved_type.name} is in use by a group or a volume, or is the"
                " default type of a project"
            )

    def volumes(self, type_id: str) -> Sequence[Volume]:
        answer = self.cinder.send("GET", f"types/{type_id}", allowed=(_GONE,))
        if answer.status_code == _GONE:
            return []
        name = answer.json()["volume_type"]["name"]
        query = {"all_tenants": "True", "volume_type_id": type_id}
        records = self.cinder.fetch("volumes/detail", "volumes", **query)
        return [self._volume(record) for record in records if record["volume_type"] == name]

    def _volume(self, record: Mapping[str, Any]) -> Volume:
        changed = datetime.fromisoformat(record["updated_at"] or record["created_at"])
        return Volume(
            id=record["id"],
            size=record["size"],
            status=record["status"],
            reservation_id=record["metadata"].get(MARK),
            is_attached=bool(record["attachments"]),
            is_stuck=self._clock.now() - changed.replace(tzinfo=UTC) > self._patience,
        )

    def create(self, lease: Lease, reserved_type: ReservedType, name: str, size: int) -> str:
        if lease.trust_id is None:
            raise BackendUnavailable(f"lease {lease.id} has no trust to create volumes with")
        cinder = Cinder(self._conf, self._trusts.session(lease.trust_id))
        values = {
            "name": name,
            "size": size,
            "volume_type": reserved_type.name,
            "metadata": {MARK: reserved_type.reservation_id},
        }
        return str(cinder.send("POST", "volumes", {"volume": values}).json()["volume"]["id"])

    def detach(self, volume: Volume) -> None:
        """Detach a volume from servers through Nova; delete other attachments through Cinder."""
        path = f"volumes/{volume.id}"
        answer = self.cinder.send("GET", path, allowed=(_GONE,))
        for record in answer.json().get("volume", {}).get("attachments", ()):
            on_server = record["server_id"] and self._servers.detach(record["server_id"], volume.id)
            if not on_server:
                self.cinder.send(
                    "DELETE", f"attachments/{record['attachment_id']}", allowed=(_GONE,)
                )

    def delete(self, volume: Volume) -> None:
        """Delete a volume with its snapshots, by force.

        If the volume is stuck in a status such as ``deleting``, first reset its status.
        """
        path = f"volumes/{volume.id}"
        if volume.is_stuck and volume.status not in {"available", "error", "error_deleting"}:
            self.cinder.act(path, "os-reset_status", status="error", migration_status="none")
        query = {"force": "True", "cascade": "True"}
        self.cinder.send("DELETE", path, params=query, allowed=(_GONE,))

    def move(self, volume: Volume, base_id: str) -> None:
        path = f"volumes/{volume.id}"
        if volume.reservation_id:
            self.cinder.send("DELETE", f"{path}/metadata/{MARK}", allowed=(_GONE,))
        self.cinder.act(path, "os-retype", new_type=base_id, migration_policy="never")
