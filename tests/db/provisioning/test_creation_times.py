"""The durations of creations, on each database."""

import threading
import time
from datetime import timedelta

import pytest
from sqlalchemy.orm import Session

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
    is_stored = threading.Event()

    def store_slowly(session: Session) -> None:
        creation_times.remember(session, IMAGE, 2.0, NOON, KEPT)
        is_stored.set()
        time.sleep(0.3)

    thread = threading.Thread(target=database.write, args=(store_slowly,))
    thread.start()
    is_stored.wait()
    remember(database, IMAGE, 3.0)
    thread.join()
    assert known(database, IMAGE) == [1.0] * before + [2.0, 3.0]


def test_only_the_last_durations_of_recent_kinds_are_kept(database: Database) -> None:
    remember(database, OLD, 1.0)
    for number in range(REMEMBERED + 3):
        remember(database, IMAGE, 1.0 + number, KEPT + timedelta(seconds=1))
    assert known(database, IMAGE) == [4.0 + number for number in range(REMEMBERED)]
    assert known(database, OLD) == []
