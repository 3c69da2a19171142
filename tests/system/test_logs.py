"""Log lines name the request, the event and the lease."""

import json
from pathlib import Path
from typing import Any

import requests

from tests.support.process import (
    Program,
    Service,
    date,
    eventually,
    free_port,
    running,
    write_config,
)
from tests.support.service import host_reservation

GLOBAL_ID = "req-0a0b0c0d-0000-4000-8000-00000000abcd"


def config(home: Path, url: str, name: str, **options: object) -> str:
    """Write a configuration; return its argument."""
    path = write_config(
        home / name,
        database__connection=url,
        simulated__journal=home / "cloud",
        manager__poll_interval=0.1,
        **options,
    )
    return f"--config-file={path}"


def post(service: Service, **headers: str) -> requests.Response:
    """Request a lease that starts now, as alice."""
    body = {
        "name": "lease",
        "start_date": "now",
        "end_date": date(60),
        "reservations": [host_reservation()],
    }
    sent = {"X-Auth-Token": "alice:lab", **headers}
    return requests.post(f"{service.url}/v1/leases", json=body, headers=sent, timeout=30)


def json_lines(program: Program, text: str) -> list[dict[str, Any]]:
    """Wait until the program logs ``text`` in JSON; return the ids in these lines."""

    def found() -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in program.errors.splitlines() if text in line]
        return [item["context"] for item in lines]

    return eventually(found, f"{program.name} logs {text!r}")


def test_log_lines_name_the_request_the_event_and_the_lease(
    sqlite_url: str, tmp_path: Path
) -> None:
    service = Service(free_port())
    sound = config(tmp_path, sqlite_url, "api.conf", DEFAULT__use_json=True)
    failing = {"simulated__failure_rate": 1, "DEFAULT__use_json": True}
    with (
        running(tmp_path, "climate-api", sound, "--port", str(service.port)) as api,
        running(
            tmp_path, "climate-manager", config(tmp_path, sqlite_url, "manager.conf", **failing)
        ) as manager,
    ):
        api.says("climate is ready at")
        service.ok("POST", "/v1/os-hosts", {"name": "sim-1"})
        answer = post(service, **{"X-OpenStack-Request-ID": GLOBAL_ID})
        lease = answer.json()["lease"]
        start = next(event for event in lease["events"] if event["event_type"] == "start_lease")

        (line,) = json_lines(api, "POST /v1/leases: 201")
        assert line["request_id"] == answer.headers["X-Openstack-Request-Id"]
        assert line["global_request_id"] == GLOBAL_ID
        assert (line["user"], line["project"]) == ("alice", "lab")
        assert line["lease_id"] == lease["id"]
        assert line["auth_token"] is None

        (hosts,) = json_lines(api, "POST /v1/os-hosts: 201")
        assert (hosts["lease_id"], hosts["global_request_id"]) == (None, None)

        failure = json_lines(manager, "event start_lease of lease")[0]
        assert failure["event_id"] == start["id"]
        assert failure["request_id"] == f"event-{start['id']}"
        assert failure["lease_id"] == lease["id"]


def test_no_request_forges_a_log_line(sqlite_url: str, tmp_path: Path) -> None:
    service = Service(free_port())
    plain = config(tmp_path, sqlite_url, "api.conf")
    with running(tmp_path, "climate-api", plain, "--port", str(service.port)) as api:
        api.says("climate is ready at")
        forged = "/v1/leases/a%0a2026-01-01 00:00:00 INFO climate.forged [-] done%1b[31m%e2%80%a8"
        assert service.call("DELETE", forged).status_code == 404
        api.says("done")
        assert not [line for line in api.errors.splitlines() if line.startswith("2026-01-01")]
        assert "\x1b" not in api.errors
        assert r"a\n2026-01-01" in api.errors


def test_plain_log_lines_name_the_request_and_the_lease(sqlite_url: str, tmp_path: Path) -> None:
    service = Service(free_port())
    plain = config(tmp_path, sqlite_url, "api.conf")
    with running(tmp_path, "climate-api", plain, "--port", str(service.port)) as api:
        api.says("climate is ready at")
        service.ok("POST", "/v1/os-hosts", {"name": "sim-1"})
        answer = post(service, **{"X-OpenStack-Request-ID": "whatever I like"})
        request_id = answer.headers["X-Openstack-Request-Id"]
        api.says("POST /v1/leases: 201")
        (line,) = [item for item in api.errors.splitlines() if "/v1/leases: 201" in item]
        assert f"[None {request_id} alice lab " in line
        assert f"[lease: {answer.json()['lease']['id']}] POST" in line
        assert "whatever" not in api.errors, "callers do not write into the log"
