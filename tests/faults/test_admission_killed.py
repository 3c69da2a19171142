"""A process that is killed at any statement of an admission leaves no trace."""

import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest
import sqlalchemy as sa

from climate.core.lease.model import Lease
from climate.db.resources import allocations
from climate.manager.events.dispatcher import Dispatcher
from climate.manager.leases.delete import delete_lease
from climate.manager.leases.read import find_all_leases
from climate.manager.process.runtime import Runtime
from tests.conftest import NOON
from tests.race.engine import kinds
from tests.race.engine.bookings import violations
from tests.race.engine.requests import addresses, change, hosts, instances, reserve
from tests.support import rows
from tests.support.clock import ManualClock
from tests.support.process import FORKSERVER, eventually

pytestmark = pytest.mark.faults

THINGS = [kinds.host(), kinds.host(gpus=2), kinds.pool(1_000)]
# More statements than any request has.
_ENOUGH = 60


def _create(runtime: Runtime) -> object:
    return reserve(runtime, hosts(), instances(2, 4, vcpus=1, gpus=1), addresses(300, 500), start=0)


def _update(runtime: Runtime) -> object:
    [lease] = find_all_leases(runtime, None)
    return change(runtime, lease, end=5, min=2, max=4, vcpus=2)


def _delete(runtime: Runtime) -> object:
    [lease] = find_all_leases(runtime, None)
    delete_lease(runtime, lease.id)
    return None


def _pending(runtime: Runtime) -> Lease:
    return reserve(runtime, instances(2, vcpus=1, gpus=1), addresses(300), hosts(), start=2)


def _running(runtime: Runtime) -> Lease:
    lease = reserve(runtime, instances(2, vcpus=1, gpus=1), addresses(300), hosts(), start=0)
    Dispatcher(runtime, "manager").run_due()
    return lease


def _stop_at(number: int, url: str, what: Callable[[Runtime], object], seen: Connection) -> None:
    """Run ``what``, but stop before its statement ``number`` (the commit counts as one)."""
    runtime = kinds.make_runtime(url, ManualClock(NOON))
    left = [number]

    def count(*_arguments: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            seen.send("there")
            time.sleep(1_000)

    sa.event.listen(runtime.database.engine, "before_cursor_execute", count)
    sa.event.listen(runtime.database.engine, "commit", count)
    what(runtime)
    seen.send("done")


def _is_killed_at(number: int, url: str, what: Callable[[Runtime], object]) -> bool:
    """Kill a process at that statement; return whether it had reached it."""
    ours, theirs = FORKSERVER.Pipe()
    process = FORKSERVER.Process(target=_stop_at, args=(number, url, what, theirs), daemon=True)
    process.start()
    there: bool = ours.recv() == "there"
    process.kill()
    process.join()
    ours.close()
    theirs.close()
    return there


@pytest.mark.nightly(reason="kills a process at each statement of four requests")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("before", "what"),
    [
        pytest.param(lambda _: None, _create, id="create"),
        pytest.param(_pending, _update, id="update"),
        pytest.param(_running, _update, id="update of what runs"),
        pytest.param(_pending, _delete, id="delete"),
    ],
)
def test_a_request_killed_at_any_statement_leaves_no_row_and_no_lock(
    database_url: str, before: Callable[[Runtime], object], what: Callable[[Runtime], object]
) -> None:
    runtime = kinds.make_runtime(database_url, ManualClock(NOON))
    database = runtime.database
    ids = set(kinds.register(database, THINGS))
    before(runtime)
    found = rows.dump(database)
    number = 1
    while _is_killed_at(number, database_url, what):
        assert rows.dump(database) == found, f"killed at statement {number}"
        eventually(
            lambda: database.write(lambda one: allocations.lock(one, ids, wait=False)) == ids,
            "its locks are gone",
        )
        number += 1
        assert number < _ENOUGH
    assert number > 5
    after = rows.dump(database)
    assert after != found
    assert violations(after, NOON) == []
    database.dispose()
