"""The state of a resource in SQL, compared with the pure function."""

import itertools
from typing import Any

import sqlalchemy as sa

from climate.core.lease.model import HOST
from climate.core.provisioning.host_state import HostFacts, host_state
from climate.core.provisioning.preparation import PreparationState as Prep
from climate.core.provisioning.shutdown import ShutdownState as Power
from climate.db.engine import ids
from climate.db.engine.database import Database
from climate.db.provisioning import host_facts
from climate.db.tables.leases import ResourceRow
from climate.db.tables.provisioning import PreparationRow, ReadinessRow, ShutdownRow
from tests.conftest import NOON

ALL = [
    HostFacts(
        reservable=reservable, is_quarantined=quarantine, preparation=prep, shutdown=power, up=up
    )
    for reservable, quarantine, prep, power, up in itertools.product(
        (True, False),
        (True, False),
        (None, Prep.WANTED, Prep.ACCEPTED, Prep.READY, Prep.FAILED),
        (None, Power.WANTED, Power.ACCEPTED, Power.OFF, Power.WAKING, Power.KEPT),
        (None, True, False),
    )
]


def _task(id_: int, progress: str, **more: Any) -> dict[str, Any]:
    """Return the columns that preparations and shutdowns share."""
    task = {"id": ids.new_id(), "resource_id": id_, "node": "n", "hardware": "", "attempt": 0}
    return {**task, "progress": progress, "wanted_at": NOON, **more}


def _preparation(id_: int, state: Prep, **more: Any) -> dict[str, Any]:
    booking = {"lease_id": "lease", "reservation_id": ids.new_id(), "needed_at": NOON}
    return {
        **_task(id_, state.value),
        **booking,
        "lead": 1.0,
        "seconds": {},
        "over_at": None,
        **more,
    }


def _store(database: Database, all_facts: list[HostFacts]) -> list[int]:
    """Store a host with each of these facts; return the ids of the hosts in the same order."""
    hosts = [
        {"type": HOST, "external_id": f"{n:04}", "reservable": facts.reservable, "created_at": NOON}
        for n, facts in enumerate(all_facts)
    ]
    with database.engine.begin() as connection:
        connection.execute(sa.insert(ResourceRow), hosts)
        by_name = sa.select(ResourceRow.id).order_by(ResourceRow.external_id)
        host_ids = list(connection.scalars(by_name))
        pairs = list(zip(host_ids, all_facts, strict=True))
        known: list[dict[str, Any]] = [
            {
                "resource_id": id_,
                "hardware": "",
                "times": [],
                "set_aside": "broken" if facts.is_quarantined else None,
                "up": facts.up,
            }
            for id_, facts in pairs
            if facts.is_quarantined or facts.up is not None
        ]
        wanted = [_preparation(id_, facts.preparation) for id_, facts in pairs if facts.preparation]
        off = [
            _task(id_, facts.shutdown.value, ahead=1.0) for id_, facts in pairs if facts.shutdown
        ]
        for row, values in ((ReadinessRow, known), (PreparationRow, wanted), (ShutdownRow, off)):
            if values:
                connection.execute(sa.insert(row), values)
    return host_ids


def test_sql_selects_the_facts_and_the_state_of_every_combination(database: Database) -> None:
    host_ids = _store(database, ALL)
    with database.read() as session:
        found = host_facts.find(session, host_ids, provisioning=True)
        plain = host_facts.find(session, host_ids, provisioning=False)
        states = {
            provisioning: dict(
                session.execute(
                    sa.select(
                        ResourceRow.id,
                        host_facts.state_of(ResourceRow.id, provisioning=provisioning),
                    )
                ).all()
            )
            for provisioning in (True, False)
        }
    assert [found[id_].facts for id_ in host_ids] == ALL
    assert [states[True][id_] for id_ in host_ids] == [host_state(facts) for facts in ALL]
    kept = [
        HostFacts(reservable=facts.reservable, is_quarantined=facts.is_quarantined) for facts in ALL
    ]
    assert [plain[id_].facts for id_ in host_ids] == kept
    assert [states[False][id_] for id_ in host_ids] == [host_state(facts) for facts in kept]


def test_the_earliest_preparation_that_is_not_over_counts(database: Database) -> None:
    (host,) = _store(database, [HostFacts(reservable=True)])
    times = [NOON.replace(hour=hour) for hour in (13, 14, 15)]
    rows = [
        _preparation(host, Prep.FAILED, needed_at=times[0], over_at=NOON),
        _preparation(host, Prep.READY, needed_at=times[1], lease_id="first"),
        _preparation(host, Prep.WANTED, needed_at=times[2], lease_id="second"),
    ]
    with database.engine.begin() as connection:
        connection.execute(sa.insert(PreparationRow), rows)
    with database.read() as session:

        def found(lease_id: str | None) -> tuple[Any, ...]:
            reports = host_facts.find(session, [host], provisioning=True, lease_id=lease_id)
            return reports[host].facts.preparation, reports[host].needed_at

        assert found(None) == found("first") == (Prep.READY, times[1])
        assert found("second") == (Prep.WANTED, times[2])
        assert found("third") == (None, None)
