"""Leases that run, by what they have reserved."""

import datetime as dt
from typing import Any

import pytest
import sqlalchemy as sa

from climate.core.lease.lifecycle import LeaseStatus
from climate.db.engine.database import Database
from climate.db.leases.running import running_with
from climate.db.tables.leases import LeaseRow, ReservationRow

STACK, HOST = "virtual:stack", "physical:host"
NOW = dt.datetime(2030, 1, 15, 12, tzinfo=dt.UTC)


def add_lease(
    database: Database, lease_id: str, resource_type: str, details: dict[str, Any], status: str
) -> None:
    common = {"status": status, "created_at": NOW}
    lease = {"id": lease_id, "name": "a", "user_id": "u", "project_id": "p", "notices": []}
    dates = {"start_at": NOW, "end_at": NOW + dt.timedelta(hours=1), "degraded": False}
    reservation = {"id": f"r-{lease_id}", "lease_id": lease_id, "position": 0, "params": {}}
    flags = {"missing_resources": False, "resources_changed": False}
    kept = {"resource_type": resource_type, "details": details}
    with database.engine.begin() as connection:
        connection.execute(sa.insert(LeaseRow).values(**lease, **dates, **common))
        connection.execute(
            sa.insert(ReservationRow).values(**reservation, **flags, **kept, **common)
        )


@pytest.mark.parametrize(
    ("stack_ids", "found"),
    [
        (None, {"one", "two", "without"}),
        (["s1"], {"one"}),
        (["s2", "s1", "s9"], {"one", "two"}),
        (["s9"], set()),
        ([], set()),
    ],
)
def test_finds_active_leases_by_type_and_stack(
    database: Database, stack_ids: list[str] | None, found: set[str]
) -> None:
    active = LeaseStatus.ACTIVE.value
    add_lease(database, "one", STACK, {"stack_id": "s1", "deployed": True}, active)
    add_lease(database, "two", STACK, {"stack_id": "s2"}, active)
    add_lease(database, "without", STACK, {}, active)
    add_lease(database, "over", STACK, {"stack_id": "s1"}, LeaseStatus.TERMINATED.value)
    add_lease(database, "other", HOST, {"stack_id": "s1"}, active)
    with database.read() as session:
        ids = running_with(session, [STACK], stack_ids)
    assert sorted(ids) == sorted(found)
