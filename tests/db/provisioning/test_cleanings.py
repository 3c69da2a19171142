"""Measurements of cleanings, on each database."""

import threading
import time
from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy.orm import Session

from climate.core.provisioning.cleaning import Cleaning
from climate.core.provisioning.lead_time import REMEMBERED
from climate.db.engine.database import Database
from climate.db.provisioning import cleanings
from tests.conftest import NOON


def cleaning(node: int, lease_id: str = "a", after: float = 0) -> Cleaning:
    return Cleaning(
        resource_id=node,
        lease_id=lease_id,
        resource_class="small",
        began_at=NOON + timedelta(seconds=after),
    )


def finish(session: Session, node: int, seconds: float) -> None:
    if cleanings.remove(session, cleaning(node)):
        cleanings.remember(session, "small", seconds)


@pytest.mark.parametrize(
    ("other", "known"), [(1, [1.0, 2.0]), (2, [1.0, 2.0, 3.0])], ids=["same node", "another node"]
)
def test_two_managers_finish_each_measurement_once(
    database: Database, other: int, known: list[float]
) -> None:
    database.write(lambda session: cleanings.remember(session, "small", 1.0))
    database.write(lambda session: cleanings.begin(session, [cleaning(1), cleaning(2)]))
    is_finished = threading.Event()

    def finish_slowly(session: Session) -> None:
        finish(session, 1, 2.0)
        is_finished.set()
        time.sleep(0.3)

    thread = threading.Thread(target=database.write, args=(finish_slowly,))
    thread.start()
    is_finished.wait()
    database.write(lambda session: finish(session, other, 3.0))
    thread.join()
    with database.read() as session:
        assert cleanings.times(session) == {"small": known}


def test_a_measurement_is_kept_for_the_same_lease_and_replaced_by_the_next(
    database: Database,
) -> None:
    first, again, following = cleaning(1), cleaning(1, after=1), cleaning(1, "b", after=2)
    for item, stored in [(first, first), (again, first), (following, following)]:
        database.write(partial(cleanings.begin, cleanings=[item, cleaning(2)]))
        with database.read() as session:
            found = {each.resource_id: each for each in cleanings.find_all(session)}
        assert found == {1: stored, 2: cleaning(2)}


def test_only_the_last_durations_are_kept(database: Database) -> None:
    for number in range(REMEMBERED + 3):
        seconds = 1.0 + number
        database.write(partial(cleanings.remember, resource_class="small", seconds=seconds))
    with database.read() as session:
        assert cleanings.times(session)["small"] == [4.0 + number for number in range(REMEMBERED)]
