"""Without each guard of admission, a concurrent request at the critical moment breaks a rule."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy.orm import Session

from climate.core.errors import ClimateError
from climate.db.engine import database as engine_database
from climate.db.resources import allocations
from climate.db.resources.allocations import Grabbed
from climate.manager.admission import admission, reallocation
from climate.manager.admission.admission import admit
from climate.manager.admission.at_once import AtOnce
from climate.manager.leases import create
from climate.manager.leases.read import find_all_leases
from climate.manager.process.runtime import Runtime
from tests.conftest import NOON
from tests.race.databases import PROOF
from tests.race.engine import kinds
from tests.race.engine.bookings import violations
from tests.race.engine.requests import addresses, change, hosts, instances, reserve
from tests.support import rows
from tests.support.clock import ManualClock

Request = Callable[[Runtime], object]


@pytest.fixture(autouse=True)
def _transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each request run in a transaction; the single statement has its own tests."""
    monkeypatch.setattr(create, "book_at_once", lambda *_, **__: AtOnce.UNDECIDED)


# How long a rival is given to come first: as long as it takes, or, where it must wait for us,
# until that is sure.
_LONG, _SHORT = 20.0, 0.3


@dataclass(frozen=True)
class Clash:
    """Two requests for the same resource: ours, after ``before``, and the rival's."""

    name: str
    ours: Request
    theirs: Request
    before: Request = lambda _: None


def _first(runtime: Runtime) -> Any:
    return find_all_leases(runtime, None)[0]


WHOLE = Clash("whole", lambda r: reserve(r, hosts()), lambda r: reserve(r, hosts()))
SHARED = Clash(
    "shared", lambda r: reserve(r, instances(vcpus=5)), lambda r: reserve(r, instances(vcpus=4))
)
GPU = Clash("gpu", lambda r: reserve(r, instances(gpus=1)), lambda r: reserve(r, instances(gpus=1)))
POOL = Clash("pool", lambda r: reserve(r, addresses(600)), lambda r: reserve(r, addresses(500)))
SHARE_OF_WHOLE = Clash(
    "share of whole", lambda r: reserve(r, instances(vcpus=1)), lambda r: reserve(r, hosts())
)
WHOLE_OF_SHARED = Clash(
    "whole of shared", lambda r: reserve(r, hosts()), lambda r: reserve(r, instances(vcpus=1))
)
ALONE = Clash(
    "alone",
    lambda r: reserve(r, instances(vcpus=1, exclusive=True)),
    lambda r: reserve(r, instances(vcpus=1, exclusive=True)),
)
ALONE_OF_SHARED = Clash(
    "alone of shared",
    lambda r: reserve(r, instances(vcpus=1, exclusive=True)),
    lambda r: reserve(r, instances(vcpus=1)),
)
SHARE_OF_ALONE = Clash(
    "share of alone",
    lambda r: reserve(r, instances(vcpus=1)),
    lambda r: reserve(r, instances(vcpus=1, exclusive=True)),
)
MOVED = Clash(
    "moved",
    lambda r: change(r, _first(r), start=1, end=2),
    lambda r: reserve(r, hosts()),
    lambda r: reserve(r, hosts(), start=10),
)
GROWN = Clash(
    "grown",
    lambda r: change(r, _first(r), vcpus=6),
    lambda r: reserve(r, instances(vcpus=4)),
    lambda r: reserve(r, instances(vcpus=2)),
)
EXCLUSIVE = (ALONE, ALONE_OF_SHARED, SHARE_OF_ALONE)
NEW = (WHOLE, SHARED, GPU, POOL, SHARE_OF_WHOLE, WHOLE_OF_SHARED, *EXCLUSIVE)
CHANGED = (MOVED, GROWN)
SHARES = (SHARED, GPU, POOL, GROWN, *EXCLUSIVE)
WHOLES = (WHOLE, MOVED)

# Where the rival comes: between the choice and the lock, or between the second look and the write.
BEFORE_LOCK, BEFORE_WRITE = "before the lock", "before the write"


@contextmanager
def rival_at(
    where: str, monkeypatch: pytest.MonkeyPatch, theirs: Callable[[], None], wait: float
) -> Iterator[None]:
    """Run the rival's request once at this point, and wait for it for a while."""
    thread = threading.Thread(target=theirs)

    def come() -> None:
        if thread.ident is None:
            thread.start()
            thread.join(wait)

    if where == BEFORE_LOCK:
        lock = allocations.lock

        def late_lock(session: Session, ids: Any, *, wait: bool) -> set[int]:
            come()
            return lock(session, ids, wait=wait)

        monkeypatch.setattr(allocations, "lock", late_lock)
        # PostgreSQL may find and lock in one statement: no rival can run in between.
        monkeypatch.setattr(allocations, "grab", _found_only)
    else:
        present = create.admit  # type: ignore[attr-defined] # may be patched already
        monkeypatch.setattr(create, "admit", _then(present, come))
        # A lease that keeps what it has is not admitted again.
        monkeypatch.setattr(reallocation, "_admit", _then(reallocation._admit, come))
    yield
    thread.join()


def _found_only(*arguments: Any, locking: int, **options: Any) -> Grabbed:
    return Grabbed(allocations.candidates(*arguments, **options))


def _found_and_said_to_be_locked(*arguments: Any, locking: int, **options: Any) -> Grabbed:
    found = allocations.candidates(*arguments, **options)
    return Grabbed(found, locked=found[:locking], changed=found)


def _then(admit: Callable[..., Any], come: Callable[[], None]) -> Callable[..., Any]:
    def admit_late(*arguments: Any, **options: Any) -> Any:
        taken = admit(*arguments, **options)
        come()
        return taken

    return admit_late


def without(removed: str, dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if removed == "locks" and dialect != "sqlite":
        monkeypatch.setattr(allocations, "lock", lambda _session, ids, *, wait: set(ids))
        monkeypatch.setattr(allocations, "grab", _found_and_said_to_be_locked)
    elif removed == "locks":
        begin = lambda connection: connection.exec_driver_sql("BEGIN")  # noqa: E731
        monkeypatch.setattr(engine_database, "_sqlite_begin", begin)
        monkeypatch.setattr(create, "admit", _apart(admit))
    elif removed == "still there":
        monkeypatch.setattr(admission, "is_still_free", lambda *_: True)
    elif removed == "leaves enough":
        monkeypatch.setattr(admission, "leaves_enough", lambda *_: True)


def _apart(admit: Callable[..., Any]) -> Callable[..., Any]:
    """Return an admission that searches in a transaction of its own."""

    def apart(session: Session, *arguments: Any) -> Any:
        with Session(session.get_bind(), info=session.info) as other:
            return admit(other, *arguments)

    return apart


def clash(url: str, case: Clash, removed: str, where: str) -> tuple[int, list[str]]:
    """Run both requests; return how many were admitted, and the violations in the rows."""
    mine, other = (kinds.make_runtime(url, ManualClock(NOON)) for _ in range(2))
    dialect = mine.database.dialect
    rows.put_back(mine.database, {**rows.dump(mine.database), **_NOTHING})
    kinds.register(mine.database, [kinds.host(gpus=1), kinds.pool(1_000)])
    case.before(mine)
    served: list[object] = []

    def request(runtime: Runtime, what: Request) -> None:
        with suppress(ClimateError):
            served.append(what(runtime))

    waits = removed != "locks" and where == BEFORE_WRITE
    waits |= dialect == "sqlite" and (removed != "locks" or case in CHANGED)
    waits |= case is GROWN and dialect == "mysql"
    with pytest.MonkeyPatch.context() as patched:
        without(removed, dialect, patched)
        theirs = lambda: request(other, case.theirs)  # noqa: E731
        with rival_at(where, patched, theirs, _SHORT if waits else _LONG):
            request(mine, case.ours)
    wrong = violations(rows.dump(mine.database), NOON)
    mine.close()
    other.close()
    return len(served), wrong


_NOTHING: rows.Rows = {
    name: []
    for name in (
        "leases", "reservations", "events", "outbox", "allocations", "inventories",
        "resource_properties", "properties", "resources",
    )
}  # fmt: skip


def cases(where: str) -> tuple[Clash, ...]:
    """Return the possible clashes: a change locks its own resources before it searches."""
    return NEW if where == BEFORE_LOCK else NEW + CHANGED


def violated(url: str, removed: str, where: str) -> set[str]:
    """Return the clashes whose rows violate a rule."""
    found = set()
    for case in cases(where):
        served, wrong = clash(url, case, removed, where)
        assert bool(wrong) == (served > 1), (case.name, served, wrong)
        assert served >= 1, case.name
        if wrong:
            found.add(case.name)
    return found


def names(*found: Clash) -> set[str]:
    return {case.name for case in found}


@pytest.mark.parametrize("where", [BEFORE_LOCK, BEFORE_WRITE])
def test_nothing_is_booked_twice(database_url: str, where: str) -> None:
    assert violated(database_url, "nothing", where) == set()


@pytest.mark.parametrize("where", [BEFORE_LOCK, BEFORE_WRITE])
@PROOF
def test_admission_alone_prevents_double_booking(unguarded_url: str, where: str) -> None:
    assert violated(unguarded_url, "nothing", where) == set()


@PROOF
def test_without_locks_only_the_schema_prevents_double_booking(
    database_url: str, unguarded_url: str, backend: str
) -> None:
    # A change gives up what it has before it looks. On SQLite who has written has the database;
    # on MariaDB it depends on the indexes whether one can book beside rows that are deleted.
    changes = {"sqlite": set[str](), "mariadb": names(MOVED)}.get(backend, names(*CHANGED))
    maybe = names(GROWN) if backend == "mariadb" else set[str]()
    assert violated(unguarded_url, "locks", BEFORE_WRITE) - maybe == names(*NEW) | changes
    whole = names(*WHOLES) if backend == "mariadb" else names(*NEW, *CHANGED) - names(*SHARES)
    assert violated(database_url, "locks", BEFORE_WRITE) - maybe == (names(*NEW) | changes) - whole


@PROOF
def test_without_the_second_check_of_bookings_whole_hosts_are_booked_twice(
    database_url: str, unguarded_url: str, backend: str
) -> None:
    wholes = names(WHOLE, SHARE_OF_WHOLE, WHOLE_OF_SHARED)
    everything = wholes | names(*EXCLUSIVE)
    by_schema = names(WHOLE) if backend == "mariadb" else wholes
    alone = backend == "sqlite"  # the only writer, so no rival can run in between
    assert violated(unguarded_url, "still there", BEFORE_LOCK) == (set() if alone else everything)
    left = set() if alone else everything - by_schema
    assert violated(database_url, "still there", BEFORE_LOCK) == left


@PROOF
def test_without_the_second_check_of_capacity_shares_are_booked_twice(
    database_url: str, backend: str
) -> None:
    alone = backend == "sqlite"
    expected = set() if alone else names(SHARED, GPU, POOL)
    assert violated(database_url, "leaves enough", BEFORE_LOCK) == expected
