"""A private volume type for tests of reserved volumes."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from openstack.connection import Connection
from openstack.exceptions import NotFoundException, raise_from_response

from tests.support.process import Service, eventually

_VERSION = "3.44"
_DEFAULT_TYPES = "3.62"


@dataclass(frozen=True)
class Base:
    """A volume type that can be reserved, as the cloud's administrator sees it."""

    cloud: Connection
    id: str
    name: str

    def get(self, path: str, **query: str) -> Any:
        """Return Cinder's answer."""
        return self.cloud.block_storage.get(path, params=query, microversion=_VERSION).json()

    def act(self, volume_id: str, action: str, **values: Any) -> None:
        path = f"/volumes/{volume_id}/action"
        raise_from_response(self.cloud.block_storage.post(path, json={action: values}))

    def types(self) -> dict[str, dict[str, Any]]:
        """Return the types of reservations of this type, by name."""
        found = self.get("/types", is_public="None")["volume_types"]
        return {
            item["name"]: item for item in found if (item["description"] or "").endswith(self.id)
        }

    def volumes(self, name: str | None = None) -> list[dict[str, Any]]:
        """Return the volumes of this or of another type."""
        found = self.get("/volumes/detail", all_tenants="1")["volumes"]
        return [item for item in found if item["volume_type"] == (name or self.name)]

    def register(self, administrator: Service, gigabytes: int = 10) -> dict[str, Any]:
        resource = {"resource_type": "virtual:volume", "name": self.name}
        body = {**resource, "properties": {"gigabytes": gigabytes}}
        return dict(administrator.ok("POST", "/v2/resources", body))

    def access(self, type_id: str) -> list[str]:
        """Return the ids of the projects that can use a type."""
        found = self.get(f"/types/{type_id}/os-volume-type-access")["volume_type_access"]
        return [item["project_id"] for item in found]

    def quota(self, project_id: str) -> dict[str, int]:
        return dict(self.get(f"/os-quota-sets/{project_id}")["quota_set"])

    def set_quota(self, project_id: str, **values: int) -> None:
        body = {"quota_set": values}
        answer = self.cloud.block_storage.put(f"/os-quota-sets/{project_id}", json=body)
        assert answer.ok, answer.text

    def default_of(self, project_id: str) -> str | None:
        """Return the id of a project's default type; None if it has none."""
        storage, path = self.cloud.block_storage, f"/default-types/{project_id}"
        answer = storage.get(path, microversion=_DEFAULT_TYPES)
        return answer.json()["default_type"]["volume_type_id"] if answer.ok else None

    def set_default(self, project_id: str, type_id: str | None) -> None:
        """Set the default type of a project; None removes it."""
        storage, path = self.cloud.block_storage, f"/default-types/{project_id}"
        body = {"default_type": {"volume_type": type_id}}
        if type_id:
            answer = storage.put(path, json=body, microversion=_DEFAULT_TYPES)
        else:
            answer = storage.delete(path, microversion=_DEFAULT_TYPES)
        raise_from_response(answer)

    def clear(self) -> None:
        """Delete all volumes of this type, and all types of its reservations."""
        for name, one in [*self.types().items(), (self.name, {"id": None})]:
            for volume in self.volumes(name):
                self._delete(volume)
            eventually(partial(self._is_empty, name), f"{name} is empty")
            if one["id"]:
                self.cloud.block_storage.delete_type(one["id"])

    def _is_empty(self, name: str) -> bool:
        return not self.volumes(name)

    def _delete(self, volume: dict[str, Any]) -> None:
        """Delete a volume in any status, if it still exists."""
        with suppress(NotFoundException):
            detached = {"status": "error", "attach_status": "detached"}
            self.act(volume["id"], "os-reset_status", **detached)
            storage, path = self.cloud.block_storage, f"/volumes/{volume['id']}"
            answer = storage.delete(f"{path}?force=True&cascade=True", microversion=_VERSION)
            if not answer.ok:  # it may be 400 when the volume has just gone
                raise_from_response(storage.get(path))
            raise_from_response(answer)


@contextmanager
def temporary_volume_type(cloud: Connection) -> Iterator[Base]:
    """Create a private volume type; at the end delete it with its volumes."""
    name = f"climate-test-{uuid.uuid4().hex[:8]}"
    pools = cloud.block_storage.get("/scheduler-stats/get_pools?detail=True").json()["pools"]
    backend = pools[0]["capabilities"]["volume_backend_name"]
    made = cloud.block_storage.create_type(
        name=name, is_public=False, extra_specs={"volume_backend_name": backend}
    )
    base = Base(cloud, made.id, name)
    try:
        yield base
    finally:
        base.clear()
        cloud.block_storage.delete_type(made)
