"""Advisory locks: one holder among all threads of all processes, for a limited time."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from climate.core.errors import Contention
from climate.db.engine import advisory_lock
from climate.db.engine.advisory_lock import AdvisoryLocks
from climate.db.engine.database import Database
from tests.race.crowd import Crowd, wait_for_all
from tests.support import servers
from tests.support.process import FORKSERVER

ROUNDS = 3
THREADS = 8
FOR_EVER = 1000.0

Join = Callable[..., AdvisoryLocks]


@pytest.fixture
def join() -> Iterator[Join]:
    """Return a maker of advisory locks that seem to be of another process."""
    made: list[Database] = []

    def join(url: str) -> AdvisoryLocks:
        made.append(Database(url))
        return AdvisoryLocks(made[-1])

    yield join
    for database in made:
        database.dispose()


def _is_alone(place: Path) -> bool:
    """Stay in a section for a moment; return whether no other thread was in it."""
    try:
        os.close(os.open(place, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    time.sleep(0.005)
    place.unlink()
    return True


def _take_locks(number: int, url: str, place: Path) -> list[bool]:
    database = Database(url)
    mine = AdvisoryLocks(database)
    wait_for_all()
    found = []
    for _ in range(ROUNDS):
        with mine.hold("the place"):
            found.append(_is_alone(place))
    database.dispose()
    return found


def _hold(url: str, test: Connection) -> None:
    with AdvisoryLocks(Database(url)).hold("the place"):
        test.send("I have it")
        time.sleep(FOR_EVER)


def test_no_two_processes_hold_a_lock(crowd: Crowd, database_url: str, tmp_path: Path) -> None:
    found = crowd.do(_take_locks, database_url, tmp_path / "place")
    assert all(alone for alones in found for alone in alones)


def test_waiting_threads_leave_connections_to_the_holder(database_url: str, tmp_path: Path) -> None:
    database = Database(database_url, pool_size=1)
    mine = AdvisoryLocks(database)

    def use(_number: int) -> bool:
        with mine.hold("the place"), database.read() as session:
            session.connection()
            return _is_alone(tmp_path / "place")

    with ThreadPoolExecutor(THREADS) as threads:
        assert all(threads.map(use, range(THREADS * ROUNDS)))
    database.dispose()


def test_waiting_ends_with_an_error_and_a_killed_process_releases_its_lock(
    database_url: str, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = FORKSERVER.Pipe()
    holder = FORKSERVER.Process(target=_hold, args=(database_url, theirs), daemon=True)
    holder.start()
    assert ours.recv() == "I have it"
    here = join(database_url)
    with monkeypatch.context() as patch:
        patch.setattr(advisory_lock, "WAIT", 1)
        with (
            pytest.raises(Contention, match="used the place for 1 sec"),
            here.hold("the place"),
        ):
            pass
    holder.kill()
    with here.hold("the place"):
        pass
    holder.join()
    ours.close()


def test_waiting_for_another_thread_ends_with_an_error(
    database_url: str, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advisory_lock, "WAIT", 0.1)
    here = join(database_url)

    def take() -> None:
        with here.hold("the place"):
            pass

    with ThreadPoolExecutor(1) as threads:
        with here.hold("another place"), pytest.raises(Contention):
            threads.submit(take).result()
        threads.submit(take).result()


def test_an_error_releases_the_lock(database_url: str, join: Join) -> None:
    here, there = join(database_url), join(database_url)
    with pytest.raises(ValueError, match="no such host"), here.hold("the place"):
        raise ValueError("no such host")
    with there.hold("the place"), pytest.raises(ZeroDivisionError):
        raise ZeroDivisionError


@pytest.mark.parametrize("backend", ["postgresql", "mariadb"], indirect=True)
def test_the_server_releases_a_lock_held_too_long_and_the_holder_logs_it(
    database_url: str,
    join: Join,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(advisory_lock, "HOLD", 1)
    here, there = join(database_url), join(database_url)
    with here.hold("the place"), there.hold("the place"):
        pass
    assert "lost the lock of the place" in caplog.text
    with here.hold("the place"):
        pass
    assert len(caplog.records) == 1


@pytest.mark.parametrize("backend", ["postgresql", "mariadb"], indirect=True)
def test_locks_of_other_names_and_databases_are_independent(
    backend: str, database_url: str, join: Join
) -> None:
    with join(database_url).hold("the place"):
        with join(database_url).hold("another place"):
            pass
        with join(servers.create(backend)).hold("the place"):
            pass
