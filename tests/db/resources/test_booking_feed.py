"""The booking feed: a snapshot and all changes after it give the bookings in the database."""

import datetime as dt
import random
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.model import HOST
from climate.core.matching.booked_hours.booking_change import (
    UNKNOWN_OWNER,
    BookingChange,
    ResourceBookings,
    ResourceState,
    owner_hash,
)
from climate.db.engine.database import Database
from climate.db.leases import leases
from climate.db.resources import allocations, resources
from climate.db.resources.feed import numbered, rows
from climate.db.resources.feed.dialects import for_dialect
from climate.db.resources.feed.port import KEPT, BookingFeed, Position
from climate.db.tables.leases import (
    AllocationRow,
    LeaseRow,
    ReservationRow,
    ResourceProperty,
    ResourceRow,
)
from climate.manager.resources.inventory_sync import synchronise
from tests.conftest import NOON
from tests.support.backends import on_postgresql, on_servers
from tests.support.service import Story, host_reservation

HOUR = dt.timedelta(hours=1)
# The database's own clock decides which bookings are over; it is before NOON and after this.
PAST = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
Booking = tuple[int, int, int, bool, int]


class Copy:
    """A reader of the feed: counts bookings, and keeps the states of resources."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.feed: BookingFeed = for_dialect(database.dialect)
        self.bookings: Counter[Booking] = Counter()
        with database.snapshot() as session:
            snapshot = self.feed.snapshot(session, [HOST])
            self.position = snapshot.position
            self.states = {state.resource_id: state for state in snapshot.resources}
            for item in snapshot.bookings:
                self.bookings.update(expanded(item))

    def catch_up(self) -> list[BookingChange]:
        """Apply all changes, which must not be lost; return them."""
        changes = self.feed.latest_changes(self.database, self.position)
        assert not changes.is_lost
        with self.database.read() as session:
            states = self.feed.resource_states(session, changes.resources)
        for id_ in changes.resources:
            self.states.pop(id_, None)
        self.states |= {state.resource_id: state for state in states}
        for change in changes.changes:
            key = change.resource_id, change.start, change.end, change.is_shared, change.owner
            self.bookings[key] += 1 if change.is_added else -1
            assert self.bookings[key] >= 0, f"removed before it was added: {change}"
        self.bookings = +self.bookings
        self.position = changes.position
        return list(changes.changes)

    @property
    def is_lost(self) -> bool:
        with self.database.read() as session:
            return self.feed.changes_since(session, self.position).is_lost

    def check(self) -> None:
        """Catch up, and compare with a new copy and with the rows."""
        self.catch_up()
        fresh = Copy(self.database)
        assert self.bookings == fresh.bookings
        assert self.states == fresh.states
        assert self.bookings == stored(self.database)


def expanded(item: ResourceBookings) -> list[Booking]:
    assert list(item.starts) == sorted(item.starts)
    columns = zip(item.starts, item.ends, item.owners, strict=True)
    return [(item.resource_id, start, end, item.is_shared, owner) for start, end, owner in columns]


def stored(database: Database) -> Counter[Booking]:
    """Return the bookings in the database, converted in Python."""
    query = (
        sa.select(AllocationRow, LeaseRow.project_id)
        .outerjoin(ReservationRow, ReservationRow.id == AllocationRow.reservation_id)
        .outerjoin(LeaseRow, LeaseRow.id == ReservationRow.lease_id)
    )
    with database.read() as session:
        return Counter(
            (
                row.resource_id,
                rows.to_microseconds(row.start_at),
                rows.to_microseconds(row.busy_until),
                row.resource_class is not None,
                owner_hash(project) if project else UNKNOWN_OWNER,
            )
            for row, project in session.execute(query)
        )


@pytest.fixture
def host(database: Database) -> int:
    return add_host(database, "host-1")


def add_host(database: Database, name: str) -> int:
    def work(session: Session) -> int:
        row = ResourceRow(type=HOST, external_id=name, reservable=True, created_at=NOON)
        session.add(row)
        session.flush()
        return row.id

    return database.write(work)


def add_lease(database: Database, id_: str, project: str = "project") -> str:
    """Store a lease with one reservation; both have the same id."""

    def work(session: Session) -> None:
        common = {"id": id_, "created_at": NOON}
        session.add(
            LeaseRow(
                **common,
                name="lease",
                user_id="user",
                project_id=project,
                start_at=NOON,
                end_at=NOON + HOUR,
                status="PENDING",
                degraded=False,
                notices=[],
            )
        )
        session.flush()
        session.add(
            ReservationRow(
                **common,
                lease_id=id_,
                position=0,
                resource_type=HOST,
                status="pending",
                params={},
                details={},
                missing_resources=False,
                resources_changed=False,
            )
        )

    database.write(work)
    return id_


def book(session: Session, host: int, *, start: dt.datetime = NOON, **columns: Any) -> None:
    row = {"resource_id": host, "start_at": start, "busy_until": start + HOUR, **columns}
    allocations.take(session, [row])


@contextmanager
def open_transaction(database: Database) -> Iterator[Session]:
    """Return a session whose transaction commits at the end of the block."""
    with Session(database.engine) as session, session.begin():
        yield session


def test_a_copy_sees_each_change_of_a_booking(database: Database, host: int) -> None:
    lease, other = add_lease(database, "lease"), add_lease(database, "other", "another")
    copy = Copy(database)
    start, hour, owner = rows.to_microseconds(NOON), 3_600_000_000, owner_hash("project")
    whole = BookingChange(host, start, start + hour, False, owner, True)
    shorter = replace(whole, end=start + hour // 2)
    moved = replace(shorter, owner=owner_hash("another"))
    detached = replace(moved, end=start + hour // 4, owner=UNKNOWN_OWNER)

    def gone(change: BookingChange) -> BookingChange:
        return replace(change, is_added=False)

    half, quarter = NOON + HOUR / 2, NOON + HOUR / 4
    steps: list[tuple[Callable[[Session], object], list[BookingChange]]] = [
        (lambda session: book(session, host, reservation_id=lease), [whole]),
        (lambda session: allocations.shorten(session, [lease], half), [gone(whole), shorter]),
        (lambda session: allocations.shorten(session, [lease], half), []),
        (
            lambda session: allocations.hand_on(session, lease, other, [host]),
            [gone(shorter), moved],
        ),
        (
            lambda session: allocations.detach(session, [other], quarter),
            [
                gone(moved),
                replace(moved, end=detached.end),
                gone(replace(moved, end=detached.end)),
                detached,
            ],
        ),
        (lambda session: allocations.forget_cleaned(session, quarter), [gone(detached)]),
    ]
    for work, expected in steps:
        database.write(work)
        assert copy.catch_up() == sorted(expected, key=lambda change: not change.is_added)
    assert not copy.bookings


@on_postgresql
def test_a_copy_needs_no_order_of_the_rows(database: Database, host: int) -> None:
    """PostgreSQL stores rows where there is room, for example in a page of the connection."""
    lease, copy = add_lease(database, "lease"), Copy(database)
    for _ in range(2):
        database.write(lambda session: book(session, host, reservation_id=lease))
        database.write(lambda session: allocations.release(session, [lease]))
    with database.engine.begin() as connection:  # moves these rows behind the others
        connection.exec_driver_sql("UPDATE booking_changes SET made_at = made_at WHERE is_added")
    copy.check()
    assert not copy.bookings


def _delete_rows(row: type[Any], id_: Any) -> Callable[[Session], object]:
    return lambda session: session.execute(sa.delete(row).where(row.id == id_))


@pytest.mark.parametrize(
    "delete",
    [
        lambda session, host, lease: leases.delete(session, lease),
        lambda session, host, lease: leases.delete_reservations(session, [lease]),
        lambda session, host, lease: allocations.release(session, [lease]),
        lambda session, host, lease: allocations.give_up(session, lease, [host]),
        lambda session, host, lease: resources.delete(session, host),
    ],
    ids=["lease", "reservation", "release", "give_up", "resource"],
)
def test_a_copy_sees_each_kind_of_removal_with_the_owner(
    database: Database, host: int, delete: Callable[[Session, int, str], object]
) -> None:
    lease = add_lease(database, "lease")
    database.write(lambda session: book(session, host, reservation_id=lease))
    copy = Copy(database)
    assert copy.bookings
    database.write(lambda session: delete(session, host, lease))
    assert [change.owner for change in copy.catch_up()] == [owner_hash("project")]
    assert not copy.bookings


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"], indirect=True)
def test_triggers_record_cascades_of_an_earlier_release(database: Database, host: int) -> None:
    lease = add_lease(database, "lease")
    database.write(lambda session: book(session, host, reservation_id=lease))
    copy = Copy(database)
    database.write(_delete_rows(LeaseRow, lease))
    with database.read() as session:
        (change,) = copy.feed.changes_since(session, copy.position).changes
    assert (change.resource_id, change.is_added, change.owner) == (host, False, UNKNOWN_OWNER)


def test_a_copy_sees_which_resources_changed(database: Database, host: int) -> None:
    copy = Copy(database)
    other = add_host(database, "host-2")
    gpu = {"name": "gpu", "value": "a", "native": False}

    def set_gpu(session: Session, value: str) -> None:
        changed = sa.update(ResourceProperty).where(ResourceProperty.resource_id == host)
        session.execute(changed.values(value=value))

    def count_up(session: Session) -> None:
        values = {"generation": ResourceRow.generation + 1, "updated_at": NOON}
        session.execute(sa.update(ResourceRow).values(values))

    known = ResourceState(host, HOST, True, {})
    steps: list[tuple[Callable[[Session], object], dict[int, ResourceState | None]]] = [
        (lambda _: None, {other: ResourceState(other, HOST, True, {})}),
        (count_up, {}),
        (
            lambda session: session.add(ResourceProperty(resource_id=host, **gpu)),
            {host: replace(known, properties={"gpu": "a"})},
        ),
        (lambda session: set_gpu(session, "b"), {host: replace(known, properties={"gpu": "b"})}),
        (lambda session: session.execute(sa.delete(ResourceProperty)), {host: known}),
        (
            lambda session: resources.set_reservable(session, [host], NOON, reservable=False),
            {host: replace(known, is_reservable=False)},
        ),
        (lambda session: resources.delete(session, other), {other: None}),
    ]
    for work, expected in steps:
        database.write(work)
        with database.read() as session:
            assert set(copy.feed.changes_since(session, copy.position).resources) == set(expected)
        copy.catch_up()
        assert {id_: copy.states.get(id_) for id_ in expected} == expected


def test_bookings_that_are_over_are_not_part_of_the_feed(database: Database, host: int) -> None:
    copy = Copy(database)
    database.write(lambda session: book(session, host, start=PAST))
    assert copy.catch_up() == []
    assert not Copy(database).bookings
    database.write(lambda session: session.execute(sa.delete(AllocationRow)))
    assert copy.catch_up() == []


def test_shares_are_counted_and_sorted_apart_from_whole_bookings(
    database: Database, host: int
) -> None:
    for hour in (5, 3, 1):
        for name in ("VCPU", "DISK_GB"):
            start = NOON + hour * HOUR
            database.write(partial(book, host=host, start=start, resource_class=name, amount=1))
    database.write(lambda session: book(session, host, start=NOON + 9 * HOUR))
    with database.snapshot() as session:
        whole, shares = sorted(
            for_dialect(database.dialect).spans_of(session, [host]), key=lambda b: b.is_shared
        )
    starts = [rows.to_microseconds(NOON + hour * HOUR) for hour in (1, 1, 3, 3, 5, 5)]
    assert (whole.is_shared, shares.is_shared) == (False, True)
    assert shares.starts == array("q", starts)
    assert Copy(database).bookings == stored(database)


def test_owner_hashes_are_those_of_python(database: Database) -> None:
    projects = ["", "a", "ä€", *(f"project-{n}" for n in range(20))]
    for number, project in enumerate(projects):
        host = add_host(database, f"host-{number}")
        lease = add_lease(database, f"lease-{number}", project)
        database.write(partial(book, host=host, reservation_id=lease))
    assert {key[4] for key in Copy(database).bookings} == set(map(owner_hash, projects))


def test_a_rolled_back_booking_is_no_change(database: Database, host: int) -> None:
    copy = Copy(database)
    database.rehearse(lambda session: book(session, host))
    assert copy.catch_up() == []
    copy.check()


def test_positions_have_the_time_of_the_database(database: Database, host: int) -> None:
    copy = Copy(database)
    before = copy.position.read_at
    database.write(lambda session: book(session, host))
    copy.catch_up()
    assert before is not None
    assert copy.position.read_at is not None
    assert PAST < before <= copy.position.read_at < NOON


@on_servers
def test_a_late_commit_is_received_once(database: Database, host: int) -> None:
    """The transaction writes first and commits last; readers read at each moment."""
    early = Copy(database)
    with open_transaction(database) as session:
        book(session, host, start=NOON)
        database.write(lambda session: book(session, host, start=NOON + 2 * HOUR))
        during = Copy(database)
        assert len(early.catch_up()) == 1
        _number(database)
        assert early.catch_up() == []
        assert during.catch_up() == []
    unnumbered = Copy(database)
    for copy in (early, during):
        assert len(copy.catch_up()) == 1
    _number(database)
    for copy in (early, during, unnumbered):
        assert copy.catch_up() == []
        copy.check()


def _number(database: Database) -> None:
    database.write(for_dialect(database.dialect).number)


def _delete_from(session: Session, start: dt.datetime) -> None:
    session.execute(sa.delete(AllocationRow).where(AllocationRow.start_at == start))


def test_readers_lag_in_every_way_and_end_alike(database: Database) -> None:
    dice = random.Random(17)  # noqa: S311 - a reproducible test
    hosts = [add_host(database, f"host-{n}") for n in range(5)]
    readers = [Copy(database)]
    for step in range(60):
        start = NOON + dice.randrange(40) * HOUR
        if dice.random() < 0.6:
            host, is_share = dice.choice(hosts), dice.random() < 0.5
            columns: dict[str, Any] = {"resource_class": "VCPU", "amount": 1} if is_share else {}
            with suppress(sa.exc.DBAPIError):  # if it overlaps another booking
                database.write(partial(book, host=host, start=start, **columns))
        else:
            database.write(partial(_delete_from, start=start))
        if dice.random() < 0.3:
            _number(database)
        for reader in readers:
            if dice.random() < 0.3:
                reader.catch_up()
        if step % 15 == 0:
            readers.append(Copy(database))
    for reader in readers:
        reader.check()


def test_a_copy_follows_the_use_cases(story_everywhere: Story) -> None:
    story, database = story_everywhere, story_everywhere.runtime.database
    copy = Copy(database)
    two = {"reservations": [host_reservation(2, 2)]}
    first = story.reserve(60, 240, **two)["id"]
    copy.check()
    second = story.reserve(300, 400)["id"]
    story.ok("PUT", f"/v1/leases/{second}", {"end_date": story.date(500)})
    copy.check()
    story.at(61)
    story.cloud.fail_host(_name(story, story.hosts_of(first)[0]))
    synchronise(story.runtime)
    copy.check()
    story.ok("PUT", f"/v1/leases/{first}", {"end_date": story.date(30)})
    story.ok("DELETE", f"/v1/leases/{second}")
    story.run()
    copy.check()
    story.at(31)
    story.ok("DELETE", f"/v1/leases/{first}")
    story.run()
    copy.check()
    spare = story.ok("GET", "/v1/os-hosts")["hosts"][-1]["id"]
    story.ok("PUT", f"/v1/os-hosts/{spare}", {"gpu": "yes"})
    copy.check()
    story.ok("DELETE", f"/v1/os-hosts/{spare}")
    copy.check()


def _name(story: Story, id_: str) -> str:
    return str(story.ok("GET", f"/v1/os-hosts/{id_}")["host"]["hypervisor_hostname"])


def _age_changes(database: Database) -> None:
    """Make all changes older than ``prune`` keeps them."""
    old = sa.update(rows.CHANGES).values(made_at=PAST)
    database.write(lambda session: session.execute(old))


def _earlier(position: Position, age: dt.timedelta) -> Position:
    """Return the position as if it had been read earlier by ``age``; only PostgreSQL compares."""
    return replace(position, read_at=position.read_at and position.read_at - age)


def test_prune_deletes_only_old_changes_and_readers_notice(database: Database, host: int) -> None:
    copy, feed = Copy(database), for_dialect(database.dialect)
    _number(database)
    copy.catch_up()
    old = copy.position
    assert database.write(feed.prune) == 0
    for hour in range(3):
        database.write(partial(book, host=host, start=NOON + hour * HOUR))
        _number(database)
    copy.check()
    _age_changes(database)
    assert database.write(feed.prune) > 0
    late = Copy(database)
    late.check()
    copy.position = _earlier(old, KEPT)
    assert copy.is_lost
    database.write(lambda session: book(session, host, start=NOON + 9 * HOUR))
    assert len(late.catch_up()) == 1


def test_a_copy_notices_another_history(database: Database, host: int) -> None:
    database.write(lambda session: book(session, host))
    _number(database)
    copy = Copy(database)
    assert not copy.is_lost
    copy.position = replace(copy.position, history="another")
    assert copy.is_lost


def test_a_copy_notices_an_older_copy_of_the_database(database: Database, host: int) -> None:
    database.write(lambda session: book(session, host))
    _number(database)
    copy = Copy(database)
    later = "1:99999999:" if database.dialect == "postgresql" else "99999999"
    copy.position = replace(copy.position, mark=later)
    assert copy.is_lost


@on_postgresql
def test_a_copy_notices_a_restored_table(database: Database, host: int) -> None:
    copy = Copy(database)
    with database.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE keep (LIKE booking_changes INCLUDING ALL)")
        connection.exec_driver_sql("ALTER TABLE booking_changes RENAME TO gone")
        connection.exec_driver_sql("ALTER TABLE keep RENAME TO booking_changes")
        try:
            with Session(connection) as session:
                assert copy.feed.changes_since(session, copy.position).is_lost
        finally:
            connection.rollback()


@on_postgresql
def test_changes_of_a_dump_from_a_busier_server_are_ignored(database: Database, host: int) -> None:
    row = {"resource_id": host, "made_at": dt.datetime.now(dt.UTC), "xid": 2**60}
    with database.engine.begin() as connection:
        connection.execute(sa.insert(rows.CHANGES), [row])
    copy = Copy(database)
    with database.read() as session:
        assert copy.feed.changes_since(session, copy.position).resources == set()
    assert database.write(copy.feed.prune) == 1


class Row(dict[str, Any]):
    """A row of changes, for the pure function."""

    __getattr__ = dict.__getitem__


def _row(id_: int, number: int | None) -> Any:
    row = Row(id=id_, number=number, made_at=NOON + id_ * HOUR, resource_id=id_, start_at=None)
    row["read_at"] = NOON
    row[0] = id_  # type: ignore[index]
    return row


def test_a_change_that_was_read_without_a_number_must_not_vanish() -> None:
    """A server that crashed may have lost commits that a reader saw."""
    before = Position("1", (NOON + HOUR).isoformat(), frozenset({7}))
    known = [_row(1, 1), _row(7, None), _row(8, None)]
    assert numbered.changes_after(before, known).resources == {8}
    assert numbered.changes_after(before, [_row(1, 1), _row(7, 2)]).resources == set()
    assert numbered.changes_after(before, [_row(1, 1), _row(8, 2)]).is_lost
