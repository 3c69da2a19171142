"""Bare metal for the tests of one module: Ironic with fake hardware, and its compute service.

Both run beside the services of the testbed, whose configuration and packages stay as they are.
"""

import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from string import Template

from openstack.compute.v2.hypervisor import Hypervisor
from openstack.connection import Connection

from tests.openstack.testbed import daemons, layout, packages
from tests.openstack.testbed.daemons import Daemon
from tests.openstack.testbed.layout import Failure
from tests.support.process import eventually

# The compute service of all nodes.
SERVICE = "ironic01"
_HOME = layout.HOME / "ironic"
_VENV = _HOME / "venv"
_CONF = _HOME / "conf"
_STATE = _HOME / "state"
_MICROVERSION = {"X-OpenStack-Ironic-API-Version": "1.95"}
# Nova looks for new nodes every few seconds.
_PATIENCE = 60.0
_SIZES = {"cpus": 8, "memory_mb": 4096, "local_gb": 20, "cpu_arch": "x86_64"}
# What an operator gives to nova-compute, see docs/operator/openstack.md.
_UNIT = """\
meta:
  schema_version: '1.0'
providers:
  - identification:
      uuid: $COMPUTE_NODE
    inventories:
      additional:
        - CUSTOM_CLIMATE_NODE:
            total: 1
            max_unit: 1
"""


@dataclass(frozen=True)
class Metal:
    """The running Ironic, as its service user sees it."""

    service: Connection
    url: str

    def create(self, name: str, resource_class: str, *traits: str) -> str:
        """Create a node that is available; return its UUID."""
        body = {
            "driver": "fake-hardware",
            "name": name,
            "resource_class": resource_class,
            "properties": _SIZES,
        }
        node = self._request("POST", "/nodes", body)["uuid"]
        self._request("PUT", f"/nodes/{node}/traits", {"traits": list(traits)})
        # Until its power state is known, Nova does not use it.
        self._request("PUT", f"/nodes/{node}/states/power", {"target": "power off"})
        self._bring(node, "manage", "manageable")
        self._bring(node, "provide", "available")
        return str(node)

    def state(self, node: str) -> str:
        """Return the provision state of a node, such as ``active`` or ``clean wait``."""
        return str(self._request("GET", f"/nodes/{node}")["provision_state"])

    def state_since(self, node: str) -> datetime:
        """Return when the provision state of a node changed last."""
        return datetime.fromisoformat(
            self._request("GET", f"/nodes/{node}")["provision_updated_at"]
        )

    def cleanings(self, node: str) -> int:
        """Return how often Ironic has cleaned a node, by its log."""
        lines = (layout.LOG / "ironic.log").read_text().splitlines()
        return sum(node in line and 'to provision state "cleaning"' in line for line in lines)

    def set_maintenance(self, node: str, *, on: bool) -> None:
        self._request("PUT" if on else "DELETE", f"/nodes/{node}/maintenance", {} if on else None)

    def _bring(self, node: str, verb: str, state: str) -> None:
        self._request("PUT", f"/nodes/{node}/states/provision", {"target": verb})
        eventually(lambda: self.state(node) == state, f"node {node} is {state}", _PATIENCE)

    def _request(self, method: str, path: str, body: object = None) -> dict[str, str]:
        answer = self.service.session.request(
            f"{self.url}/v1{path}", method, json=body, headers=_MICROVERSION
        )
        return dict(answer.json()) if answer.content else {}


@contextmanager
def running(admin: Connection, service: Connection) -> Iterator[Metal]:
    """Run Ironic and its compute service; at the end, the cloud is as it was before.

    ``service`` is the connection of a user that Ironic accepts as a service. Raises Unreachable if
    the registry of packages does not answer.
    """
    packages.install_over(_VENV, layout.SOURCE / "requirements-ironic.txt")
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    _write(port)
    ironic = Daemon("ironic", [str(_VENV / "bin" / "ironic"), *_config("ironic")], port=port)
    compute = Daemon(
        "nova-compute-ironic01",
        [str(layout.BIN / "nova-compute"), *_config("nova", layout.CONF), *_config("nova-ironic")],
    )
    with ExitStack() as stack:
        stack.callback(daemons.stop, ironic.name)
        ironic.start()
        ironic.wait()
        stack.enter_context(_registered(admin, url))
        stack.callback(_forget, admin)
        stack.callback(daemons.stop, compute.name)
        compute.start()
        yield Metal(service, url)


def _write(port: int) -> None:
    """Write the configuration, and create the schema of Ironic in a new database."""
    shutil.rmtree(_STATE, ignore_errors=True)
    for folder in (_CONF, _STATE / "nova", _STATE / "provider_config"):
        folder.mkdir(parents=True, exist_ok=True)
    values = {
        "keystone": layout.KEYSTONE,
        "memcached": f"127.0.0.1:{layout.PORTS['memcached']}",
        "service": "nova",
        "state": str(_STATE),
        "port": str(port),
        "host": SERVICE,
    }
    for name in ("login", "ironic", "nova-ironic"):
        text = (layout.SOURCE / "conf" / f"{name}.conf").read_text()
        values[name] = Template(text).substitute(values)
        (_CONF / f"{name}.conf").write_text(values[name])
    (_STATE / "provider_config" / "climate.yaml").write_text(_UNIT)
    log = layout.LOG / "ironic-dbsync.log"
    if not packages.runs([_VENV / "bin/ironic-dbsync", *_config("ironic"), "create_schema"], log):
        raise Failure(f"ironic-dbsync failed; {layout.end_of(log)}")


@contextmanager
def _registered(admin: Connection, url: str) -> Iterator[None]:
    """Register Ironic in the catalog; remove it at the end."""
    identity = admin.identity
    service = identity.create_service(name="ironic", type="baremetal")
    try:
        for interface in ("public", "internal", "admin"):
            identity.create_endpoint(
                service_id=service.id, interface=interface, url=url, region_id="RegionOne"
            )
        yield
    finally:
        # Keystone deletes the endpoints of a service with it.
        identity.delete_service(service)


def _forget(admin: Connection) -> None:
    """Delete the compute service from Nova, and all of its nodes from Placement."""
    providers = list(admin.placement.resource_providers())
    roots = {
        node.id for node in admin.compute.hypervisors(details=True) if _service_of(node) == SERVICE
    }
    left = [provider for provider in providers if provider.root_provider_id in roots]
    for provider in left:
        path = f"/resource_providers/{provider.id}/allocations"
        for consumer in admin.placement.get(path).json().get("allocations", {}):
            admin.placement.delete(f"/allocations/{consumer}")
    for found in list(admin.compute.services(host=SERVICE)):
        admin.compute.delete_service(found)
    # Children first, which climate added: Placement refuses to delete a provider that has some.
    for provider in sorted(left, key=lambda item: item.id in roots):
        admin.placement.delete_resource_provider(provider)


def _service_of(node: Hypervisor) -> str:
    return str(node.service_details["host"])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _config(name: str, folder: object = _CONF) -> list[str]:
    return ["--config-file", f"{folder}/{name}.conf"]
