"""The programs of deploy/compose.yaml work together, as processes on this machine.

The test needs no container engine. It runs the commands of the project with its configuration, on
the PostgreSQL and the RabbitMQ of the tests.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

from tests.deploy import compose
from tests.support import servers
from tests.support.process import Program, Service, eventually, free_port, running
from tests.support.service import hosts

SERVICES = compose.services()
Run = Callable[..., AbstractContextManager[Program]]


def is_healthy(name: str, container_port: int, port: int) -> bool:
    """Return whether the health check of a service succeeds."""
    kind, program, *arguments = SERVICES[name]["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "python")
    assert f":{container_port}/" in arguments[-1]
    here = [text.replace(f":{container_port}/", f":{port}/") for text in arguments]
    command = [sys.executable, *here]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def set_environment(variables: dict[str, str]) -> None:
    """Set environment variables of this process."""
    os.environ.update(variables)


def start(
    home: Path, conf: Path, environment: dict[str, str], name: str, **more: object
) -> AbstractContextManager[Program]:
    """Run the command of a service with its environment, in which ``more`` options differ."""
    given = dict(SERVICES[name]["environment"])
    assert given.keys() <= environment.keys()
    given |= {**environment, **{option: str(value) for option, value in more.items()}}
    command, *arguments = SERVICES[name]["command"]
    config = f"--config-file={conf}"
    return running(home, command, *arguments, config, prepare=partial(set_environment, given))


def configuration(home: Path, port: int) -> Path:
    """Write the configuration of the project for this machine; return its path."""
    conf = home / "climate.conf"
    text = (compose.DEPLOY / "climate.conf").read_text(encoding="utf-8")
    for there, here in (
        ("host = 0.0.0.0", f"host = 127.0.0.1\nport = {port}"),
        ("/var/lib/climate/cloud", f"{home}/cloud"),
        ("http://api:1234", f"http://127.0.0.1:{port}"),
        ("/etc/climate/nodes.toml", f"{compose.DEPLOY}/nodes.toml"),
    ):
        assert there in text
        text = text.replace(there, here)
    conf.write_text(text)
    return conf


def test_a_lease_starts_when_its_hosts_are_prepared(tmp_path: Path, topic: str) -> None:
    for server in ("postgresql", "rabbitmq"):
        servers.need(server)
    service = Service(free_port())
    environment = {
        "OS_DATABASE__CONNECTION": servers.create("postgresql"),
        "OS_NOTIFICATIONS__TRANSPORT_URL": servers.RABBITMQ,
        "OS_NOTIFICATIONS__TOPICS": topic,
    }
    run = partial(start, tmp_path, configuration(tmp_path, service.port), environment)
    with run("upgrade") as upgrade:
        assert upgrade.wait() == 0
    ports = {name: free_port() for name in ("manager-1", "manager-2")}
    with ExitStack() as stack:
        stack.enter_context(run("api"))
        for name, port in ports.items():
            stack.enter_context(run(name, OS_MANAGER__METRICS_PORT=port))
        provisioner = stack.enter_context(run("provisioner"))
        eventually(lambda: is_healthy("api", 1234, service.port), "the API is healthy")
        for name, port in ports.items():
            eventually(partial(is_healthy, name, 9464, port), f"{name} is healthy")
        service.ok("POST", "/v2/resources", {"resource_type": "physical:host", "name": "sim-1"})
        asked = {"name": "first", "start": "now", "duration": 3600, "start_when": "ready"}
        lease = service.ok("POST", "/v2/leases", {**asked, "reservations": [hosts()]})
        provisioner.says("sim-1 is ready")
        eventually(
            lambda: service.ok("GET", f"/v2/leases/{lease['id']}")["status"] == "ACTIVE",
            "the lease has started",
        )
        alive = service.ok("GET", "/v2/managers")["managers"]
        assert len(alive) == len(ports)
