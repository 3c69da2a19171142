"""The ``openstack climate`` commands against a running service: the client as a plug-in."""

import datetime as dt
import json
import subprocess
from pathlib import Path

from tests.support.clients import OpenStack
from tests.support.process import BIN, Service, environment


def test_the_plug_in_creates_shows_and_deletes_a_lease(
    openstack: OpenStack, noon: dt.datetime
) -> None:
    window = ("--start", noon.isoformat(), "--duration", "1h")
    answer = openstack.run(
        *("climate", "lease", "create", "plugged", *window, "--host", "1", "-f", "json")
    )
    assert answer.code == 0, answer.errors
    made = json.loads(answer.output)
    assert made["start"] == f"{noon:%Y-%m-%dT%H:%M:%SZ}"
    listed = openstack.run("climate", "lease", "list", "-f", "value", "-c", "id")
    assert made["id"] in listed.output.splitlines()
    assert openstack.run("climate", "lease", "delete", "plugged").code == 0
    refused = openstack.run("climate", "lease", "show", "plugged")
    assert (refused.code, "No lease is named plugged." in refused.errors) == (1, True)


def test_the_plug_in_numbers_the_alternatives_of_a_refusal(
    openstack: OpenStack, noon: dt.datetime
) -> None:
    window = ("--start", noon.isoformat(), "--duration", "1h")
    openstack.run("climate", "lease", "create", "one", *window, "--host", "1")
    answer = openstack.run("climate", "lease", "create", "all", *window, "--host", "8")
    assert answer.code == 1
    assert "\n  1  later: from " in answer.errors


def test_the_installed_command_waits_for_a_lease(service: Service, tmp_path: Path) -> None:
    command = (
        *(BIN / "climate", "lease", "create", "scripted", "--duration", "2h"),
        *("--host", "min=1,max=2", "--wait", "-f", "json"),
    )
    variables = {"OS_AUTH_TYPE": "none", "OS_ENDPOINT": service.url}
    answer = subprocess.run(
        command,
        env={**environment(tmp_path), **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    lease = json.loads(answer.stdout)
    assert lease["status"] == "ACTIVE"
    assert answer.stderr.splitlines()[-1] == "ACTIVE"
    service.ok("DELETE", f"/v2/leases/{lease['id']}")
