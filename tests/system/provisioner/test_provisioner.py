"""From the lease to the chassis: climate, provisioner processes and simulated BMCs."""

import datetime as dt
import json
import signal
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from climate.notifications.emit import node_topic
from tests.support import broker, servers
from tests.support.process import (
    DEADLINE,
    Program,
    Service,
    eventually,
    free_port,
    running,
    write_config,
)
from tests.support.service import hosts
from tests.system.provisioner import bmc
from tests.system.provisioner.bmc import Bmc

NIGHTLY = pytest.mark.nightly(reason="powers twenty machines on, with time for a busy one")


@dataclass
class World:
    """A service, its nodes file, and its programs."""

    home: Path
    conf: Path
    service: Service
    manager: Program

    @contextmanager
    def provisioner(self) -> Iterator[Program]:
        with running(
            self.home, "climate-provisioner", "--debug", f"--config-file={self.conf}"
        ) as made:
            yield made.says("provisions")

    def reserve(self, seconds: int, count: int) -> str:
        """Create a lease that starts in some seconds; return its id."""
        start = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds)
        asked = {
            "name": "lease",
            "start": f"{start:%Y-%m-%dT%H:%M:%SZ}",
            "duration": 600,
            "reservations": [hosts(count, count)],
        }
        return str(self.service.ok("POST", "/v2/leases", asked)["id"])

    def preparations(self, asked: str = "") -> list[dict[str, Any]]:
        found = self.service.ok("GET", f"/v2/preparations?limit=1000&{asked}")
        return list(found["preparations"])

    def readiness(self, lease_id: str) -> dict[str, Any]:
        return dict(self.service.ok("GET", f"/v2/leases/{lease_id}/readiness"))

    def until_ready(self, lease_id: str, within: float = DEADLINE) -> dict[str, Any]:
        eventually(
            lambda: self.readiness(lease_id)["state"] not in {None, "preparing"},
            "all are ready",
            within,
        )
        return self.readiness(lease_id)


@contextmanager
def world(home: Path, nodes: dict[str, dict[str, Any]], **options: object) -> Iterator[World]:
    """Run climate with one host for each node."""
    file = home / "nodes.toml"
    lines = [f"[nodes.{name}]\n{_table(given)}" for name, given in nodes.items()]
    file.write_text("\n".join(lines))
    service = Service(free_port())
    given: dict[str, object] = {
        "DEFAULT__port": service.port,
        "database__connection": f"sqlite:///{home}/climate.sqlite",
        "simulated__hosts": len(nodes),
        "manager__sync_interval": 1.0,
        "provisioning__enabled": True,
        "provisioning__prior": 60,
        "provisioning__longest": 300,
        "provisioning__interval": 0.5,
        "provisioner__nodes_file": file,
        "provisioner__poll_interval": 0.5,
        "provisioner__claim_timeout": 5,
        "provisioner__group_pause": 0.2,
        **options,
    }
    conf = write_config(home / "climate.conf", **given)
    with running(home, "climate-standalone", "--empty", f"--config-file={conf}") as manager:
        service.until_up(manager)
        for number, name in enumerate(nodes, start=1):
            service.ok("POST", "/v1/os-hosts", {"name": f"sim-{number}", "node_name": name})
        yield World(home, conf, service, manager)


def _table(given: dict[str, Any]) -> str:
    return "".join(f"{key} = {_toml(value)}\n" for key, value in given.items())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + "}"
    return json.dumps(value)


@contextmanager
def machines(home: Path, names: list[str]) -> Iterator[dict[str, Bmc]]:
    with ExitStack() as peers:
        yield {name: peers.enter_context(bmc.ipmi(home / "bmc" / name)) for name in names}


def by_ipmi(home: Path, peer: Bmc, **more: Any) -> dict[str, Any]:
    """Return a machine's table in the nodes file."""
    secret = home / "bmc-password"
    secret.write_text(bmc.PASSWORD)
    return {
        "driver": "ipmi",
        "address": "127.0.0.1",
        "port": peer.port,
        "username": bmc.USER,
        "password_file": str(secret),
        "options": {"cipher_suite": 3},
        **more,
    }


def said(home: Path) -> str:
    """Return the output of all processes, and the content of all files of the service."""
    streams = [*home.glob("*.out"), *home.glob("*.err"), *home.glob("climate.sqlite*")]
    return "\n".join(path.read_bytes().decode(errors="replace") for path in streams)


@pytest.fixture(params=["polling", "hints"])
def hints(request: pytest.FixtureRequest) -> dict[str, object]:
    """Return options for provisioners that poll, or that only listen to the broker."""
    if request.param == "polling":
        return {}
    servers.need("rabbitmq")
    return {
        "notifications__transport_url": servers.RABBITMQ,
        "notifications__topics": f"climate-test-{uuid.uuid4().hex[:8]}",
        "provisioning__topics": True,
        "provisioner__poll_interval": 4.0,
    }


@NIGHTLY
@pytest.mark.timeout(400)
def test_two_provisioners_power_on_every_host_once_although_one_dies(
    tmp_path: Path, hints: dict[str, object]
) -> None:
    run = uuid.uuid4().hex[:8]
    names = [f"node-{run}-{number}" for number in range(20)]
    limits = {"provisioner__group_limit": 2}
    with machines(tmp_path, names) as peers, ExitStack() as stack:
        for name in names if hints else []:
            stack.callback(broker.remove_queue, f"{node_topic(name)}.info")
        nodes = {
            name: by_ipmi(tmp_path, peer, groups=["rack"], boot_device="pxe")
            for name, peer in peers.items()
        }
        at = stack.enter_context(world(tmp_path, nodes, **limits, **hints))
        doomed = stack.enter_context(at.provisioner())
        stack.enter_context(at.provisioner())
        made = at.reserve(240, 20)
        eventually(lambda: sum(bool(item.switched) for item in peers.values()) >= 4, "some are on")
        doomed.kill()
        found = at.until_ready(made, within=240)
        assert found["state"] == "ready", (found, at.preparations())
        assert found["hosts"] == found["ready"] == 20
        assert found["early"] > 0
        assert {name: one.switched for name, one in peers.items()} == {
            name: ["1"] for name in names
        }
        assert {item.sets("boot")[0] for item in peers.values()} == {"pxe"}
        assert max(item["attempt"] for item in at.preparations()) >= 2
    assert bmc.PASSWORD not in said(tmp_path)


def test_a_stopping_provisioner_releases_its_claims(tmp_path: Path) -> None:
    never = {"kind": "tcp", "host": "127.0.0.1", "port": free_port()}
    with world(
        tmp_path, {"one": {"driver": "simulated", "check": never}}, provisioner__claim_timeout=600
    ) as at:
        made = at.reserve(200, 1)
        with at.provisioner() as first:
            eventually(lambda: at.preparations("state=accepted"), "it is accepted")
            assert first.stop() == 0
        (one,) = at.preparations()
        assert (one["state"], one["owner"]) == ("wanted", None)
        assert at.readiness(made)["state"] == "preparing"


def test_a_machine_with_a_wrong_password_is_replaced_in_time(tmp_path: Path) -> None:
    with machines(tmp_path, ["bad"]) as peers:
        wrong = tmp_path / "wrong"
        wrong.write_text("n0t-the-secret")
        nodes = {
            "bad": {**by_ipmi(tmp_path, peers["bad"]), "password_file": str(wrong)},
            "good": {"driver": "simulated"},
        }
        with world(tmp_path, nodes) as at, at.provisioner():
            at.service.ok("PATCH", "/v2/resources/2/readiness", {"set_aside": "not yet"})
            made = at.reserve(200, 1)
            eventually(lambda: at.preparations("node=bad"), "the bad one is asked for")
            at.service.ok("PATCH", "/v2/resources/2/readiness", {"set_aside": None})
            eventually(lambda: at.preparations("node=good&state=ready"), "the good one is ready")
            assert at.until_ready(made)["state"] == "ready"
            aside = at.service.ok("GET", "/v2/resources/1/readiness")["set_aside"]
            assert "rejects" in aside
    assert "n0t-the-secret" not in said(tmp_path)


def test_a_host_is_ready_when_the_cloud_reports_its_service(tmp_path: Path) -> None:
    nodes = {"one": {"driver": "simulated", "check": {"kind": "service"}}}
    with world(tmp_path, nodes) as at, at.provisioner():
        made = at.reserve(200, 1)
        assert at.until_ready(made)["state"] == "ready"
        known = at.service.ok("GET", "/v2/resources/1/readiness")
        assert known["up"] is True
        assert len(known["times"]) == 1


def test_a_lease_starts_when_its_host_is_ready_without_polling(tmp_path: Path) -> None:
    rare = {"provisioner__poll_interval": 600, "provisioning__interval": 600}
    with world(tmp_path, {"one": {"driver": "simulated"}}, **rare) as at, at.provisioner():
        asked = {"name": "now", "start": "now", "duration": 600, "reservations": [hosts(1, 1)]}
        made = at.service.ok("POST", "/v2/leases", {**asked, "start_when": "ready"})["id"]

        def shown() -> dict[str, Any]:
            return dict(at.service.ok("GET", f"/v2/leases/{made}"))

        eventually(lambda: shown()["status"] == "ACTIVE", "it has started")
        assert shown()["start_delayed_at"] is not None
        assert shown()["started_at"] >= shown()["ready_at"] >= shown()["start_delayed_at"]


def test_an_invalid_nodes_file_is_explained_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "nodes.toml"
    conf = write_config(tmp_path / "climate.conf", provisioner__nodes_file=file)
    for text, reason in (
        (None, "No such file"),
        ('[nodes.a]\ndriver = "levers"\n', "unknown driver levers"),
        ('[nodes.a]\ndriver = "ipmi"\ncheck = {kind = "tcp"}\n', "tcp needs host"),
    ):
        if text is not None:
            file.write_text(text)
        program = Program(tmp_path, "climate-provisioner", f"--config-file={conf}")
        assert program.wait() == 1
        assert reason in program.last_words


def test_a_provisioner_waits_for_the_service(tmp_path: Path) -> None:
    with world(tmp_path, {"one": {"driver": "simulated"}}) as at, at.provisioner() as made:
        at.manager.signal(signal.SIGSTOP)
        at.manager.kill()
        made.says("cannot get tasks from climate")
        with running(tmp_path, "climate-standalone", f"--config-file={at.conf}") as again:
            at.service.until_up(again)
            assert at.until_ready(at.reserve(200, 1))["state"] == "ready"
