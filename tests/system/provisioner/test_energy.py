"""Power saving: BMCs power idle machines off, and on again for the next lease."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.process import eventually
from tests.support.service import hosts
from tests.system.provisioner.test_provisioner import World, by_ipmi, machines, world

WHEN = "since=2020-01-01T00:00:00Z&until=2100-01-01T00:00:00Z"
OPTIONS: dict[str, object] = {
    "provisioning__power_off": True,
    "provisioning__idle_time": 2,
    "provisioning__spare": 1,
    "provisioning__prior": 10,
    "provisioning__shortest": 5,
    "provisioning__longest": 40,
    "provisioner__shutdown_timeout": 6,
}


def shutdowns(at: World, asked: str = "") -> list[dict[str, Any]]:
    return list(at.service.ok("GET", f"/v2/shutdowns?limit=1000&{asked}")["shutdowns"])


def boot_server(home: Path, host: str) -> None:
    line = json.dumps({"effect": "boot_server", "host": host, "server": "somebody's"})
    with (home / "cloud").open("a") as journal:
        journal.write(f"{line}\n")


@pytest.mark.timeout(240)
def test_idle_machines_without_servers_are_powered_off_and_on_in_time(
    tmp_path: Path,
) -> None:
    names = ["used", "deaf", "quick", "other"]
    with machines(tmp_path, names) as peers, ExitStack() as stack:
        for peer in peers.values():
            peer.begin_with_power()
        peers["deaf"].ignore_shutdown()
        nodes = {name: by_ipmi(tmp_path, peer) for name, peer in peers.items()}
        at = stack.enter_context(
            world(tmp_path, nodes, simulated__journal=tmp_path / "cloud", **OPTIONS)
        )
        boot_server(tmp_path, "sim-1")
        doomed = stack.enter_context(at.provisioner())
        eventually(lambda: peers["deaf"].sets("shutdown"), "it is asked to shut down")
        doomed.kill()
        stack.enter_context(at.provisioner())
        stack.enter_context(at.provisioner())
        eventually(lambda: len(shutdowns(at, "state=off")) == 3, "three are off", 60)
        assert {name: peer.switched for name, peer in peers.items()} == {
            "used": [],
            "deaf": ["0"],
            "quick": ["0"],
            "other": ["0"],
        }
        assert peers["deaf"].sets("power") == ["0"]
        assert max(shutdown["attempt"] for shutdown in shutdowns(at, "node=deaf")) == 2
        assert {"somebody's" in shutdown["reason"] for shutdown in shutdowns(at, "node=used")} == {
            True
        }
        made = at.reserve(60, 4)
        assert at.until_ready(made, within=60) | {"reasons": []} | {"early": 0, "ready_at": 0} == {
            "state": "ready",
            "hosts": 4,
            "ready": 4,
            "early": 0,
            "ready_at": 0,
            "reasons": [],
            "waiting_for": [],
        }
        assert at.readiness(made)["early"] > 0
        for name in ("deaf", "quick", "other"):
            assert peers[name].switched == ["0", "1"]
        assert peers["used"].switched == []
        found = at.service.ok("GET", f"/v2/readiness/energy?{WHEN}")
        assert found["saved"][0]["shutdowns"] == 3
        assert found["saved"][0]["host_hours"] > 0


@pytest.mark.timeout(120)
def test_another_machine_is_powered_on_when_a_lease_takes_the_spare(tmp_path: Path) -> None:
    with machines(tmp_path, ["one", "two"]) as peers:
        for peer in peers.values():
            peer.begin_with_power()
        nodes = {name: by_ipmi(tmp_path, peer) for name, peer in peers.items()}
        with world(tmp_path, nodes, **OPTIONS) as at, at.provisioner():
            (gone,) = eventually(lambda: shutdowns(at, "state=off"), "one is off")
            (spare,) = peers.keys() - {gone["node"]}
            query = f'["==", "$node_name", "{spare}"]'
            asked = {
                "name": "lease",
                "start": "now",
                "duration": 600,
                "reservations": [hosts(1, 1, hypervisor_properties="", resource_properties=query)],
            }
            at.service.ok("POST", "/v2/leases", asked)
            eventually(lambda: peers[gone["node"]].switched == ["0", "1"], "the other is on again")
            eventually(lambda: shutdowns(at, "state=over"), "climate knows")
            assert peers[spare].switched == []
