"""A manager releases the hosts of an API that was killed while it waited for enforcement."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
import sqlalchemy as sa

from climate.db.engine.database import Database
from climate.db.tables.leases import AllocationRow, EventRow, LeaseRow, ReservationRow
from climate.db.tables.notifications import OutboxRow
from tests.support import enforcement
from tests.support.enforcement import Answer, EnforcementService
from tests.support.process import Service, date, eventually, free_port, running, write_config
from tests.support.service import host_reservation

pytestmark = pytest.mark.faults

HOSTS = 3
NIGHTLY = pytest.mark.nightly(reason="PostgreSQL and the matrix of faults cover the same in CI")
# Seconds: how long an answer is waited for, and how long what is asked about is held.
CONNECT, TIMEOUT, HOLD = 0.2, 2.5, 3.0


def _count(database: Database, table: type) -> int:
    with database.read() as session:
        return session.scalar(sa.select(sa.func.count()).select_from(table)) or 0


def _write_config(path: Path, url: str, outside: EnforcementService) -> str:
    """Return the argument for a configuration with short time-outs of the service."""
    options = {
        "database__connection": url,
        "simulated__journal": path / "cloud",
        "manager__poll_interval": 0.1,
        "enforcement__external_service_base_endpoint": outside.url,
        "enforcement__connect_timeout": CONNECT,
        "enforcement__timeout": TIMEOUT,
        "enforcement__hold_timeout": HOLD,
    }
    return f"--config-file={write_config(path / 'climate.conf', **options)}"


def _reserve(api: Service, body: dict[str, Any]) -> None:
    """Request a lease, and ignore the missing answer."""
    with suppress(requests.ConnectionError):
        api.call("POST", "/v1/leases", body)


@pytest.mark.parametrize(
    "backend",
    ["postgresql", *(pytest.param(item, marks=NIGHTLY) for item in ("sqlite", "mariadb"))],
    indirect=True,
)
def test_hosts_held_by_a_killed_process_are_released(database_url: str, tmp_path: Path) -> None:
    database = Database(database_url)
    api = Service(free_port())
    never = threading.Event()
    body = {
        "name": "lease",
        "start_date": "now",
        "end_date": date(120),
        "reservations": [host_reservation(HOSTS, HOSTS)],
    }

    with enforcement.serving() as outside:
        argument = _write_config(tmp_path, database_url, outside)
        serving = ("climate-api", argument, f"--port={api.port}")
        with running(tmp_path, *serving) as program:
            api.until_up(program)
            for number in range(1, HOSTS + 1):
                api.ok("POST", "/v1/os-hosts", {"name": f"sim-{number}"})
            outside.answers = [Answer(wait=lambda: never.wait(30))]
            asking = threading.Thread(target=_reserve, args=(api, body))
            asking.start()
            assert outside.is_asked.wait(30)
            program.kill()
            asking.join()
        assert _count(database, AllocationRow) == HOSTS
        with running(tmp_path, "climate-manager", argument):
            eventually(lambda: outside.bodies_of("/on-end"), "the service gets the end")
            eventually(lambda: not _count(database, EventRow), "nothing is left to do")
        for table in (LeaseRow, ReservationRow, AllocationRow, OutboxRow):
            assert _count(database, table) == 0
        [begun], [over] = outside.bodies_of("/check-create"), outside.bodies_of("/on-end")
        assert over["lease"]["id"] == begun["lease"]["id"]
        with running(tmp_path, *serving) as program:
            api.until_up(program)
            api.ok("POST", "/v1/leases", body)
        never.set()
    database.dispose()
