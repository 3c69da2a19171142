"""A machine of the testbed with a BMC: its compute service runs while the machine has power."""

import datetime as dt
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from openstack.compute.v2.service import Service
from openstack.connection import Connection

from tests.openstack import traces
from tests.openstack.testbed import daemons, layout, services
from tests.support import servers
from tests.support.process import eventually
from tests.system.provisioner import bmc
from tests.system.provisioner.bmc import Bmc

_NAMED = "warm-"
_ROOT = layout.SOURCE.parents[2]
# The controller's chassis asks it with what its power became; what boots is nova-compute.
_MACHINE = """#!/bin/sh
cd "{root}" || exit
export OPENSTACK_DIR="{testbed}"
exec "{python}" -m tests.openstack.testbed.machine {host} "$1"
"""
_NODES = """[nodes.{host}]
driver = "ipmi"
address = "127.0.0.1"
port = {port}
username = "{user}"
password_file = "{password}"
check = {{kind = "service"}}
options = {{cipher_suite = 3}}
"""


@dataclass(frozen=True)
class Machine:
    """A machine, by the name of its compute service; ``nodes`` is a provisioner's nodes file."""

    host: str
    bmc: Bmc
    nodes: Path
    cloud: Connection

    @property
    def started_at(self) -> dt.datetime | None:
        """When its compute service started; None: it does not run."""
        began = daemons.started_at(services.compute(self.host).name)
        return None if began is None else dt.datetime.fromtimestamp(began, dt.UTC)

    @property
    def service(self) -> Service | None:
        """Nova's record of its compute service."""
        found = self.cloud.compute.services(binary="nova-compute", host=self.host)
        return next(iter(found), None)

    @property
    def last_seen_at(self) -> dt.datetime | None:
        """The last heartbeat of the service that Nova received."""
        values = self.service and self.service.updated_at
        return dt.datetime.fromisoformat(values).replace(tzinfo=dt.UTC) if values else None

    def until_nova_says(self, state: str) -> None:
        """Wait until Nova shows the state ``up`` or ``down``."""
        eventually(
            lambda: self.service is not None and self.service.state == state,
            f"Nova says that {self.host} is {state}",
        )

    def commission(self) -> None:
        """Switch it on for the first time, and wait until Nova lists it."""
        self.switch("on")
        eventually(
            lambda: any(
                hypervisor.name == self.host for hypervisor in self.cloud.compute.hypervisors()
            ),
            f"Nova has {self.host} among its hypervisors",
        )
        eventually(lambda: self.last_seen_at, f"{self.host} reports to Nova")

    def switch(self, power: str) -> None:
        """Switch it ``on`` or ``off`` outside of climate."""
        at = ["-H", "127.0.0.1", "-p", str(self.bmc.port), "-U", bmc.USER, "-E"]
        subprocess.run(
            ["ipmitool", "-I", "lanplus", "-C", "3", *at, "chassis", "power", power],
            env={**os.environ, "IPMI_PASSWORD": bmc.PASSWORD},
            check=True,
            capture_output=True,
        )

    def clear(self) -> None:
        """Start it if it has servers: Nova can delete them only then."""
        if traces.servers_on(self.cloud, [self.host]):
            services.compute(self.host).start()
            self.until_nova_says("up")


@contextmanager
def machine(home: Path, cloud: Connection) -> Iterator[Machine]:
    """Add a machine without power to the testbed; at the end remove it from Nova."""
    is_testbed = cloud.session.auth.auth_url == layout.KEYSTONE
    if not is_testbed or not (layout.BIN / "python").exists():
        servers.absent("openstack", "this is not the testbed: no compute service can be added")
    _forget(cloud)  # machines of interrupted runs
    host = f"{_NAMED}{uuid.uuid4().hex[:6]}"
    with bmc.ipmi(home / "bmc") as peer:
        try:
            yield Machine(host, peer, _write(home, host, peer), cloud)
        finally:
            _forget(cloud)


def _write(home: Path, host: str, peer: Bmc) -> Path:
    """Write the chassis' program and the nodes file, and return the latter."""
    given = {"root": _ROOT, "testbed": layout.HOME, "python": sys.executable, "host": host}
    program = peer.home / "machine"
    program.write_text(_MACHINE.format(**given))
    program.chmod(0o755)
    password = home / "bmc-password"
    password.write_text(bmc.PASSWORD)
    nodes = home / "nodes.toml"
    values = {"host": host, "port": peer.port, "user": bmc.USER, "password": password}
    nodes.write_text(_NODES.format(**values))
    return nodes


def _forget(cloud: Connection) -> None:
    for name in daemons.known():
        if name.startswith(services.compute(_NAMED).name):
            daemons.kill(name)
    for item in cloud.compute.services(binary="nova-compute"):
        if item.host.startswith(_NAMED):
            cloud.compute.delete_service(item)
