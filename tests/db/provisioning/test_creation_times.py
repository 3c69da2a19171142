"""The durations of creations, on each database."""

import threading
from datetime import timedelta

import pytest

from climate.core.lease.on_start import Kind
from climate.core.provisioning.lead_time import REMEMBERED
from climate.db.engine.database import Database
from climate.db.provisioning import creation_times
from tests.conftest import NOON

IMAGE = Kind("virtual:instance", "image")
OLD = Kind("virtual:stack", "template")
KEPT = timedelta(days=90)


def remember(
    database: Database, kind: Kind, seconds: float, after: timedelta = timedelta(0)
) -> None:
    database.write(
        lambda session: creation_times.remember(session, kind, seconds, NOON + after, KEPT)
    )


def known(database: Database, kind: Kind) -> list[float]:
    with database.read() as session:
        return list(creation_times.find_all(session).get(kind, []))


@pytest.mark.parametrize("before", [0, 1])
def test_durations_that_are_stored_at_the_same_time_are_all_kept(
    database: Database, before: int
) -> None:
    for _ in range(before):
        remember(database, IMAGE, 1.0)
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        remember(database, IMAGE, 10.0 + number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(known(database, IMAGE))[before:] == [10.0 + number for number in range(8)]


def test_only_the_last_durations_of_recent_kinds_are_kept(database: Database) -> None:
    remember(database, OLD, 1.0)
    for number in range(REMEMBERED + 3):
        remember(database, IMAGE, 1.0 + number, KEPT + timedelta(seconds=1))
    assert known(database, IMAGE) == [4.0 + number for number in range(REMEMBERED)]
    assert known(database, OLD) == []
