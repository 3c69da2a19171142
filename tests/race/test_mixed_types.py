"""Sixteen processes book hosts, shares of the same hosts, and pools: none is booked twice."""

from collections import Counter

import pytest

from climate.db.engine.database import Database
from tests.conftest import NOON
from tests.race import crowd as crowds
from tests.race.crowd import Crowd
from tests.race.databases import PROOF, postgresql_first
from tests.race.engine import kinds
from tests.race.engine.bookings import violations
from tests.race.mixing import ADMITTED, AGAIN, Outcomes, mix, same_share
from tests.support import rows

REFUSED = "Refusal"
# Processes race; a scenario that must show a race is repeated until one was seen.
TRIES = 8
THINGS = [
    kinds.host("a", gpus=2),
    kinds.host("a", ratio=2.0, gpus=1),
    kinds.host("b", vcpus=16),
    kinds.host("b"),
    kinds.pool(1_000),
]
# Capacity for hotspots: half of the requests of sixteen processes, three each.
SERVED = 24
HOTSPOTS = {
    "addresses": [kinds.pool(SERVED * 7 + 6)],
    "instances": [kinds.host(vcpus=9), kinds.host(vcpus=40)],
    "gpus": [kinds.host(gpus=3) for _ in range(8)],
    "together": [kinds.host(vcpus=9), kinds.host(vcpus=40)],
    "apart": [kinds.host(vcpus=SERVED) for _ in range(2)],
}


def _outcomes(answers: list[Outcomes]) -> Outcomes:
    """Return the outcomes of all requests, without the count of repeated transactions."""
    found = sum(answers, Counter())
    found.pop(AGAIN, None)
    return found


@postgresql_first
def test_changed_and_deleted_leases_of_all_types_never_conflict(
    crowd: Crowd, database_url: str, database: Database
) -> None:
    kinds.register(database, THINGS)
    outcomes = _outcomes(crowd.do(mix, database_url, 15))
    found = rows.dump(database)
    assert violations(found, NOON) == []
    assert len(found["leases"]) == outcomes[ADMITTED] - outcomes["deleted"] > 0
    assert outcomes["changed"] > 0
    assert set(outcomes) == {ADMITTED, REFUSED, "changed", "deleted"}


@PROOF
def test_locks_and_second_checks_alone_keep_all_types_apart(
    crowd: Crowd, unguarded_url: str
) -> None:
    database = Database(unguarded_url)
    kinds.register(database, THINGS)
    crowd.do(mix, unguarded_url, 15)
    assert violations(rows.dump(database), NOON) == []
    database.dispose()


@pytest.mark.parametrize(
    ("backend", "kind"),
    [
        *(("postgresql", kind) for kind in HOTSPOTS),
        *(
            (backend, kind)
            for backend in ("sqlite", "mariadb")
            for kind in ("instances", "addresses", "gpus")
        ),
    ],
    indirect=["backend"],
)
def test_every_share_of_one_window_is_booked_once(
    crowd: Crowd, database_url: str, database: Database, kind: str
) -> None:
    kinds.register(database, HOTSPOTS[kind])
    outcomes = _outcomes(crowd.do(same_share, database_url, 3, kind))
    assert violations(rows.dump(database), NOON) == []
    assert outcomes == {ADMITTED: SERVED, REFUSED: 3 * crowds.SIZE - SERVED}


# On SQLite who writes has the database, and looks only once he has it.
@PROOF
@pytest.mark.parametrize("backend", ["postgresql", "mariadb"], indirect=True)
def test_without_the_second_check_a_pool_is_overbooked(
    crowd: Crowd, database_url: str, database: Database
) -> None:
    empty = rows.dump(database)
    for _ in range(TRIES):
        rows.put_back(database, empty)
        kinds.register(database, HOTSPOTS["addresses"])
        crowd.do(same_share, database_url, 3, "addresses", "second look")
        if violations(rows.dump(database), NOON):
            return
    pytest.fail("nothing was overdrawn, so this stress proves nothing")
