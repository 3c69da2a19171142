"""Paths and names of the testbed."""

import os
from pathlib import Path

SOURCE = Path(__file__).parent
HOME = Path(os.environ.get("OPENSTACK_DIR") or SOURCE.parents[2] / ".openstack").resolve()
# Our own resources for Heat, as operators get them.
HEAT_PLUGINS = SOURCE.parents[2] / "heat"
VENV = HOME / "venv"
BIN = VENV / "bin"
# Schemas as the migrations leave them; kept, like VENV, when the cloud is wiped.
CACHE = HOME / "cache"
CONF = HOME / "conf"
LOG = HOME / "log"
RUN = HOME / "run"
STATE = HOME / "state"
OPENRC = HOME / "openrc"
# Says why there is no cloud if the reason is that packages cannot be had.
UNREACHABLE = HOME / "unreachable"

# What is added to each port, so that a second cloud can run beside a first.
OFFSET = int(os.environ.get("OPENSTACK_PORT_OFFSET") or 0)

# Databases and the virtual host of RabbitMQ have names that nobody else's have, as the servers may
# be used by others: climate_os_nova, climate_os_heat.
PREFIX = f"climate_os_{OFFSET}" if OFFSET else "climate_os"

# Where the catalog says that leases are to be had.
RESERVATION_URL = os.environ.get("OPENSTACK_RESERVATION_URL") or "http://127.0.0.1:1234/v1"
# Blazar, for comparison; its type in the catalog is "blazar".
WITH_BLAZAR = os.environ.get("OPENSTACK_BLAZAR", "") not in {"", "0"}

_BLAZAR_PORT = {"blazar-api": 1235} if WITH_BLAZAR else {}
PORTS = {
    name: port + OFFSET
    for name, port in {
        "keystone": 5000,
        "placement": 8778,
        "glance": 9292,
        "nova-api": 8774,
        "neutron": 9696,
        "cinder-api": 8776,
        "heat-api": 8004,
        # Not the port that it has by default: someone else's may be there.
        "memcached": 11311,
        **_BLAZAR_PORT,
    }.items()
}
# Where private servers listen, if there have to be any.
MARIADB_PORT = 13306 + OFFSET
RABBITMQ_PORT = 15673 + OFFSET
KEYSTONE = f"http://127.0.0.1:{PORTS['keystone']}/v3"

# One compute service each, and one that manages several nodes. No name may be part of another:
# Nova finds hypervisors by substring.
HOSTS = " ".join([*(f"fake{n:02}" for n in range(1, 11)), "multi01=bm-01,bm-02,bm-03"])


# As many lines of a log say what went wrong.
_TELLING = 15


class Failure(Exception):
    """The cloud cannot be started."""


class Unreachable(Failure):
    """The package registry does not answer; the testbed itself is not at fault."""


def end_of(log: Path) -> str:
    """Return the path of a log and its last lines."""
    lines = log.read_text(errors="replace").splitlines()[-_TELLING:]
    return "\n    ".join([f"see {log}, which ends:", *lines])


def environment(**more: str) -> dict[str, str]:
    """Return the environment of the testbed's programs, without the caller's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
    # Cinder would have eventlet patch everything, under servers that use threads.
    own = {"PYTHONWARNINGS": "ignore", "OS_CINDER_DISABLE_EVENTLET_PATCHING": "1"}
    path = f"{BIN}:{kept['PATH']}:/usr/sbin:/sbin"
    return {**kept, "PATH": path, **own, **more}
