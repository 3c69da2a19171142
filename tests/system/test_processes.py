"""The programs as an operator runs them: several processes, stopped and started again."""

import datetime as dt
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from climate.cmd import main
from tests.support import servers
from tests.support.clients import at, moment
from tests.support.process import (
    Service,
    date,
    effects,
    eventually,
    free_port,
    reserve,
    running,
    standalone,
    write_config,
)

NIGHTLY = pytest.mark.nightly(reason="the fault tests show the same with many leases")

# API and manager.


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """Return a configuration for processes that share a new PostgreSQL database."""
    servers.need("postgresql")
    url = servers.create("postgresql")
    path = write_config(
        tmp_path / "climate.conf",
        database__connection=url,
        simulated__journal=tmp_path / "cloud",
        manager__poll_interval=0.1,
    )
    assert main.db_manage(["upgrade", f"--config-file={path}"]) == 0
    return path


@pytest.fixture
def api(conf: Path, tmp_path: Path) -> Iterator[Service]:
    service = Service(free_port())
    arguments = (f"--config-file={conf}", "--port", str(service.port))
    with running(tmp_path, "climate-api", *arguments) as program:
        program.says("climate is ready at")
        service.ok("POST", "/v1/os-hosts", {"name": "sim-1"})
        service.ok("POST", "/v1/os-hosts", {"name": "sim-2"})
        yield service


def test_the_api_admits_leases_and_a_manager_starts_announces_and_ends_them(
    api: Service, conf: Path, tmp_path: Path
) -> None:
    started, announced = reserve(api), reserve(api, date(30))  # no manager runs yet
    assert api.lease(started)["status"] == "PENDING"
    with running(tmp_path, "climate-manager", f"--config-file={conf}"):
        api.until_lease_is(started, "ACTIVE")
        eventually(lambda: len(api.event_types(announced)) == 2, "the heads-up")
        api.ok("DELETE", f"/v1/leases/{started}")
        eventually(lambda: len(api.event_types(started)) == 4, "the end")
    assert api.event_types(announced) == ["lease.create", "lease.event.before_start_lease"]
    assert api.event_types(started) == [
        "lease.create",
        "lease.event.start_lease",
        "lease.event.end_lease",
        "lease.delete",
    ]
    assert api.lease(announced)["status"] == "PENDING"


def test_a_manager_stops_whichever_thread_gets_the_signal(conf: Path, tmp_path: Path) -> None:
    with running(tmp_path, "climate-manager", f"--config-file={conf}") as program:
        program.says("climate-manager is at work").tell_another_thread()
        assert program.wait() == 0


# One process.


def test_a_lease_starts_on_time_without_a_poll_or_a_wakeup(tmp_path: Path) -> None:
    """The next poll is an hour away."""
    hour = write_config(tmp_path / "climate.conf", manager__poll_interval=3600)
    with standalone(tmp_path, f"--config-file={hour}") as (service, _):
        soon = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(seconds=5)
        asked = {
            "name": "lease",
            "start": soon.isoformat(),
            "end": (soon + dt.timedelta(hours=1)).isoformat(),
            "reservations": [{"resource_type": "physical:host", "params": {"min": 1, "max": 1}}],
        }
        lease = service.ok("POST", "/v2/leases", asked)
        wanted = ["lease.create", "lease.event.before_start_lease"]
        eventually(lambda: service.event_types(lease["id"]) == wanted, "the heads-up")
        assert service.lease(lease["id"])["status"] == "PENDING"
        # Upkeep, once a minute, would find it too.
        eventually(lambda: service.lease(lease["id"])["status"] == "ACTIVE", "it starts", 30)


def test_an_empty_service_has_no_hosts(tmp_path: Path) -> None:
    with standalone(tmp_path, "--empty") as (service, _):
        assert service.ok("GET", "/v1/os-hosts") == {"hosts": []}


def test_leases_and_hosts_survive_a_restart_and_overdue_leases_end(tmp_path: Path) -> None:
    with standalone(tmp_path) as (service, _):
        service.ok("DELETE", "/v1/os-hosts/8")
        active, pending = reserve(service, hosts=2), reserve(service, date(60))
        before = service.until_lease_is(active, "ACTIVE")
    fall_due_now(tmp_path / "c.sqlite", active)
    with standalone(tmp_path) as (service, _):
        ended = service.until_lease_is(active, "TERMINATED")
        assert ended["reservations"][0]["id"] == before["reservations"][0]["id"]
        assert service.lease(pending)["status"] == "PENDING"
        assert len(service.ok("GET", "/v1/os-hosts")["hosts"]) == 7  # it is no new database
        in_order = ["lease.create", "lease.event.start_lease", "lease.event.end_lease"]
        eventually(lambda: service.event_types(active) == in_order, "all is told, once")
    done = effects(tmp_path / "c.sqlite.cloud")
    assert done["add_host"] == done["remove_host"] == 2


def fall_due_now(database: Path, lease_id: str) -> None:
    """Let the end of a lease become due while no manager runs."""
    now = dt.datetime.now(dt.UTC).replace(tzinfo=None).isoformat(sep=" ")
    with sqlite3.connect(database) as connection:
        changed = connection.execute(
            "UPDATE events SET due_at = ?, run_at = ? WHERE lease_id = ? AND kind = 'end_lease'",
            (now, now, lease_id),
        )
        assert changed.rowcount == 1
    connection.close()


@NIGHTLY
def test_a_request_in_progress_is_answered_before_the_process_stops(tmp_path: Path) -> None:
    conf = write_config(tmp_path / "slow.conf", simulated__delay=0.3)
    with standalone(tmp_path, f"--config-file={conf}") as (service, program):
        lease_id = reserve(service)
        service.until_lease_is(lease_id, "ACTIVE")
        answers: list[int] = []

        def delete() -> None:
            answers.append(service.call("DELETE", f"/v1/leases/{lease_id}").status_code)

        deleting = threading.Thread(target=delete)
        deleting.start()
        service.until_lease_is(lease_id, "DELETING")
        assert program.stop() == 0
        deleting.join()
    assert answers == [204]


@NIGHTLY
def test_an_event_in_progress_is_finished_before_the_process_stops(tmp_path: Path) -> None:
    conf = write_config(tmp_path / "slow.conf", simulated__delay=0.3)
    with standalone(tmp_path, f"--config-file={conf}") as (service, program):
        lease_id = reserve(service, hosts=2)
        service.until_lease_is(lease_id, "STARTING")
        assert program.stop(within=20) == 0
    assert event(tmp_path / "c.sqlite", lease_id, "start_lease") == ("DONE", None)
    assert effects(tmp_path / "c.sqlite.cloud") == {"ensure_pool": 1, "add_host": 2}


def test_an_event_that_takes_too_long_is_released_and_run_by_the_next_process(
    tmp_path: Path,
) -> None:
    conf = write_config(
        tmp_path / "slow.conf", simulated__delay=3600, manager__shutdown_timeout=0.2
    )
    with standalone(tmp_path, f"--config-file={conf}") as (service, program):
        lease_id = reserve(service)
        service.until_lease_is(lease_id, "STARTING")
        assert program.stop(within=20) == 0
        assert "released them for other managers" in program.errors
    assert event(tmp_path / "c.sqlite", lease_id, "start_lease") == ("UNDONE", None)
    with standalone(tmp_path) as (service, _):
        service.until_lease_is(lease_id, "ACTIVE")
    assert effects(tmp_path / "c.sqlite.cloud") == {"ensure_pool": 1, "add_host": 1}


def event(database: Path, lease_id: str, kind: str) -> tuple[str, str | None]:
    with sqlite3.connect(database) as connection:
        found = connection.execute(
            "SELECT status, owner FROM events WHERE lease_id = ? AND kind = ?", (lease_id, kind)
        ).fetchone()
    connection.close()
    return tuple(found)


@NIGHTLY
def test_two_processes_on_one_sqlite_file_run_each_event_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/c.sqlite"
    services = [Service(free_port()), Service(free_port())]
    starts = [
        running(tmp_path, "climate-standalone", "--database", url, "--port", str(service.port))
        for service in services
    ]
    with starts[0] as first, starts[1] as second:  # both find no schema, and no hosts
        first.says("climate is ready at")
        second.says("climate is ready at")
        assert len(services[0].ok("GET", "/v1/os-hosts")["hosts"]) == 8
        leases = [reserve(services[number % 2]) for number in range(8)]
        for number, lease_id in enumerate(leases):
            services[number % 2].until_lease_is(lease_id, "ACTIVE")
        for number, lease_id in enumerate(leases):
            services[number % 2].ok("DELETE", f"/v1/leases/{lease_id}")
        eventually(lambda: not services[0].ok("GET", "/v1/leases")["leases"], "all are gone")
        eventually(
            lambda: all(len(services[0].event_types(lease)) == 4 for lease in leases), "all is told"
        )
        told = {lease_id: services[0].event_types(lease_id) for lease_id in leases}
    done = effects(tmp_path / "c.sqlite.cloud")
    assert done == dict.fromkeys(("ensure_pool", "add_host", "remove_host", "delete_pool"), 8)
    in_order = ["lease.create"] + [f"lease.event.{kind}_lease" for kind in ("start", "end")]
    assert told == {lease_id: [*in_order, "lease.delete"] for lease_id in leases}


def test_a_reminder_states_the_seconds_until_the_start(
    service: Service, lease: dict[str, Any]
) -> None:
    now = dt.datetime.now(dt.UTC)
    dates = {"start_date": at(now, 20), "end_date": at(now, 50)}
    service.ok("PUT", f"/v1/leases/{lease['id']}", dates)
    eventually(lambda: len(service.event_types(lease["id"])) == 3, "the reminder")
    [reminder] = [
        found
        for found in service.ok("GET", "/v2/notifications?limit=1000")["notifications"]
        if found["lease_id"] == lease["id"] and found["event_type"].endswith("before_start_lease")
    ]
    start = moment(reminder["payload"]["start_date"])
    left = (start - dt.datetime.fromisoformat(reminder["created_at"])).total_seconds()
    assert reminder["payload"]["starts_in"] == pytest.approx(left, abs=1)
