"""The wait list under load: ``python -m benchmarks wait_list [--database URL] [CASES]``.

Each case fills a temporary database with ``--hosts`` hosts in four racks, and leases that wait.
Waiting leases have 20 shapes: five sizes for each rack. The cases are:

- ``look``: all hosts are booked, and ``--waiting`` leases wait. Leases that are no help are
  deleted, and each time ``place_pool`` looks at all waiting leases. ``p50_ms`` is its time.
- ``fit``: all hosts are free, and ``--fitting`` leases wait. ``seconds`` is the time until all are
  booked.
- ``slower``: leases with fixed dates are created and deleted in two databases, in turn: one has
  ``--waiting`` waiting leases, the other has none. ``create_ratio`` and ``delete_ratio`` are the
  quotients of the median times. No pass runs meanwhile.
- ``beside``: the same, but a manager runs passes in another thread in both databases.

Prints one JSON object per case.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from functools import partial
from itertools import product
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from benchmarks.admission.tasks import fill_memory, make_conf
from benchmarks.databases.scratch import scratch
from benchmarks.options import some_of
from climate.cmd import bootstrap
from climate.core.lease.model import HOST
from climate.db.engine import ids
from climate.db.engine.database import Database
from climate.db.tables.leases import (
    EVENTS,
    LEASES,
    RESERVATIONS,
    ResourceProperty,
    ResourceRow,
)
from climate.db.tables.waiting import WAITS
from climate.manager.admission.requirements import ReservationRequest
from climate.manager.leases.create import LeaseRequest, Owner
from climate.manager.leases.delete import delete_lease
from climate.manager.process.runtime import Runtime
from climate.manager.wait_list.displacing import create_before_promises
from climate.manager.wait_list.passes import place_pool, wait_list_task
from climate.manager.wait_list.turns import take_turn
from climate.manager.wait_list.waiting import WaitRequest, wait_for_lease

_RACKS, _SIZES = "abcd", (1, 2, 3, 4, 6)
# Hosts that no waiting lease accepts.
_SPARE_RACK, _SPARES = "e", 60
_DAY = timedelta(days=1)
_OWNER = Owner(user_id="user", project_id="project")
_ROUNDS, _PER_ROUND, _BATCH = 20, 20, 200
# The tables of a waiting lease, and their columns with its id.
_COPIED = {LEASES: "id", RESERVATIONS: "lease_id", EVENTS: "lease_id", WAITS: "lease_id"}


def main() -> None:
    """Run the cases and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="?", default=list(_CASES), type=some_of(_CASES))
    parser.add_argument("--database", help="URL of a server; default: an SQLite file")
    parser.add_argument("--hosts", type=int, default=1_000)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--fitting", type=int, default=1_000)
    given = parser.parse_args()
    for case in given.cases:
        print(json.dumps({"case": case, **_CASES[case](given)}), flush=True)


def _look(given: argparse.Namespace) -> dict[str, Any]:
    with _service(given) as runtime:
        _occupy(runtime, given.hosts)
        spare = [_book(runtime, _SPARE_RACK, _tomorrow(runtime)) for _ in range(_ROUNDS)]
        _let_wait(runtime, given.waiting)
        placed = place_pool(runtime, HOST)
        times = []
        for id_ in spare:
            delete_lease(runtime, id_)
            times.append(_seconds(lambda: place_pool(runtime, HOST)))
        return {"promised": placed, "p50_ms": _ms(times), "max_ms": round(max(times) * 1e3, 1)}


def _fit(given: argparse.Namespace) -> dict[str, Any]:
    with _service(given) as runtime:
        _let_wait(runtime, given.fitting, sizes=(1,))
        results: list[int] = []
        seconds = _seconds(lambda: results.append(place_pool(runtime, HOST)))
        return {"booked": sum(results), "seconds": round(seconds, 2)}


def _slower(given: argparse.Namespace, *, passes: bool = False) -> dict[str, Any]:
    with _service(given) as full, _service(given) as empty:
        for runtime in (full, empty):
            _occupy(runtime, given.hosts)
        _let_wait(full, given.waiting)
        _analyse(empty)
        place_pool(full, HOST)
        creates: dict[bool, list[float]] = {True: [], False: []}
        deletes: dict[bool, list[float]] = {True: [], False: []}
        for number in range(_ROUNDS + 1):
            for is_full in (True, False) if number % 2 else (False, True):
                runtime = full if is_full else empty
                with _passes(runtime) if passes else nullcontext():
                    created, deleted = _round(runtime)
                if number:  # the first one fills caches
                    creates[is_full] += created
                    deletes[is_full] += deleted
        return {
            "create_ms": [_ms(creates[False]), _ms(creates[True])],
            "delete_ms": [_ms(deletes[False]), _ms(deletes[True])],
            "create_ratio": _ratio(creates),
            "delete_ratio": _ratio(deletes),
        }


def _beside(given: argparse.Namespace) -> dict[str, Any]:
    return _slower(given, passes=True)


_CASES: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "look": _look,
    "fit": _fit,
    "slower": _slower,
    "beside": _beside,
}


@contextmanager
def _service(given: argparse.Namespace) -> Iterator[Runtime]:
    """Return a context with the runtime of a new database with hosts."""
    with scratch(given.database) as database:
        _add_hosts(database, given.hosts)
        url = database.engine.url.render_as_string(hide_password=False)
        runtime = bootstrap.make_runtime(make_conf(url))
        fill_memory(runtime)
        yield runtime
        runtime.close()


@contextmanager
def _passes(runtime: Runtime) -> Iterator[None]:
    task = wait_list_task(runtime)
    runtime.wakeup.subscribe(task.wake)
    task.start()
    yield
    task.stop()


def _add_hosts(database: Database, count: int) -> None:
    common = {"type": HOST, "reservable": True, "created_at": datetime.now().astimezone()}
    racks = [_RACKS[number % len(_RACKS)] for number in range(count)] + [_SPARE_RACK] * _SPARES
    rows = [{**common, "external_id": f"host-{number}"} for number in range(len(racks))]
    with database.engine.begin() as connection:
        connection.execute(sa.insert(ResourceRow), rows)
        ids = connection.scalars(sa.select(ResourceRow.id).order_by(ResourceRow.id)).all()
        properties = [
            {"resource_id": id_, "name": "rack", "value": rack, "native": False}
            for id_, rack in zip(ids, racks, strict=True)
        ]
        connection.execute(sa.insert(ResourceProperty), properties)


def _occupy(runtime: Runtime, hosts: int) -> None:
    """Book each host of the racks for one to ten days, and for two days a month later."""
    for number in range(hosts):
        now, rack = runtime.clock.now(), _RACKS[number % len(_RACKS)]
        length = _DAY + timedelta(minutes=13 * number)
        _book(runtime, rack, now, length)
        _book(runtime, rack, now + 30 * _DAY, 2 * _DAY)


def _tomorrow(runtime: Runtime) -> datetime:
    return (runtime.clock.now() + _DAY).replace(microsecond=0)


def _book(runtime: Runtime, rack: str, start: datetime, length: timedelta = _DAY) -> str:
    request = _request(rack, 1, start, start + length)
    return create_before_promises(runtime, _OWNER, request).id


def _request(rack: str, size: int, start: datetime, end: datetime) -> LeaseRequest:
    query = f'["==", "$rack", "{rack}"]'
    params = {"min": size, "max": size, "hypervisor_properties": "", "resource_properties": query}
    wanted = ReservationRequest(resource_type=HOST, params=params)
    return LeaseRequest(name="lease", start=start, end=end, reservations=(wanted,))


def _let_wait(runtime: Runtime, count: int, sizes: tuple[int, ...] = _SIZES) -> None:
    """Let leases wait, while nothing places them: some of each shape, and copies of these."""
    turn = take_turn(runtime, HOST)
    wishes = list(product(_RACKS, sizes, (1, 2, 3)))
    for rack, size, days in wishes:
        now = runtime.clock.now()
        request = _request(rack, size, now, now + 300 * _DAY)
        wait_for_lease(runtime, _OWNER, request, _DAY * days, WaitRequest())
        if turn is not None:
            turn.goes_on()
    _copy(runtime, count - len(wishes))
    if turn is not None:
        turn.leave(even_if_wanted=True)
    _analyse(runtime)


def _analyse(runtime: Runtime) -> None:
    """Let PostgreSQL collect statistics, as it does from time to time."""
    with runtime.database.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as one:
        if one.dialect.name == "postgresql":
            one.exec_driver_sql("ANALYZE")


def _copy(runtime: Runtime, count: int) -> None:
    """Copy the rows of waiting leases until there are ``count`` more, in the same order."""
    with runtime.database.read() as session:
        rows = {table: session.execute(sa.select(table)).mappings().all() for table in _COPIED}
    waiting = sorted(row["lease_id"] for row in rows[WAITS])
    for first in range(0, count, _BATCH):
        copies: dict[sa.Table, list[dict[str, Any]]] = {table: [] for table in _COPIED}
        for number in range(first, min(first + _BATCH, count)):
            old, new = waiting[number % len(waiting)], ids.new_id()
            for table, column in _COPIED.items():
                names = {item.name for item in table.columns if not item.computed}
                copies[table] += [
                    {name: value for name, value in copy.items() if name in names}
                    for row in rows[table]
                    if row[column] == old
                    if (copy := {**row, "id": ids.new_id(), column: new})
                ]
            copies[WAITS][-1]["rank_at"] += timedelta(seconds=number)
        runtime.database.write(partial(_insert, copies=copies))


def _insert(session: Session, copies: dict[sa.Table, list[dict[str, Any]]]) -> None:
    for table, values in copies.items():
        session.execute(sa.insert(table), values)


def _round(runtime: Runtime) -> tuple[list[float], list[float]]:
    """Create leases that no waiting lease competes with, and delete them; return the times."""
    ids, start = list[str](), _tomorrow(runtime)
    created = [
        _seconds(lambda: ids.append(_book(runtime, _SPARE_RACK, start))) for _ in range(_PER_ROUND)
    ]
    deleted = [_seconds(partial(delete_lease, runtime, id_)) for id_ in ids]
    return created, deleted


def _seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _ms(times: list[float]) -> float:
    return round(statistics.median(times) * 1e3, 2)


def _ratio(times: dict[bool, list[float]]) -> float:
    return round(statistics.median(times[True]) / statistics.median(times[False]), 3)


if __name__ == "__main__":
    main()
