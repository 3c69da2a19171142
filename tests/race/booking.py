"""What each process of a crowd does: request hosts, with or without the guards."""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from climate.core.errors import ClimateError, Contention
from climate.core.lease.change import Change
from climate.core.lease.model import Lease
from climate.db.engine import database as engine_database
from climate.db.resources import allocations
from climate.db.resources.allocations import Grabbed
from climate.manager.admission.admission import admit
from climate.manager.admission.at_once import AtOnce
from climate.manager.admission.requirements import ReservationRequest
from climate.manager.leases import create
from climate.manager.leases.create import LeaseRequest, Owner, create_lease
from climate.manager.leases.delete import delete_lease
from climate.manager.leases.reservation_changes import LeaseChange, ReservationChange
from climate.manager.leases.update import update_lease
from climate.manager.process.runtime import Runtime
from tests.race.crowd import at_work, wait_for_all

OWNER = Owner(user_id="user", project_id="project")

Outcomes = Counter[str]
ADMITTED = "admitted"
# Repeats of a request that ended with Contention.
_REPEATS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRequest:
    """Hosts from ``start`` hours after now, for ``hours``."""

    start: int = 1
    hours: int = 1
    minimum: int = 1
    maximum: int = 1

    def params(self) -> dict[str, Any]:
        """Return what a reservation asks for."""
        anything = {"hypervisor_properties": "", "resource_properties": "", "before_end": "default"}
        return {"min": self.minimum, "max": self.maximum, **anything}


def reserve(runtime: Runtime, wish: HostRequest) -> Lease:
    begin = runtime.clock.now() + timedelta(hours=wish.start)
    request = LeaseRequest(
        name="lease",
        start=begin,
        end=begin + timedelta(hours=wish.hours),
        reservations=(ReservationRequest(resource_type="physical:host", params=wish.params()),),
    )
    return create_lease(runtime, OWNER, request)


def change(runtime: Runtime, lease: Lease, wish: HostRequest) -> Lease:
    begin = runtime.clock.now() + timedelta(hours=wish.start)
    dates = Change(start=begin, end=begin + timedelta(hours=wish.hours))
    reservation = ReservationChange(
        id=lease.reservations[0].id, resource_type=None, params=wish.params()
    )
    return update_lease(runtime, lease.id, LeaseChange(dates=dates, reservations=(reservation,)))


def random_requests(number: int, count: int, first: int = 1) -> list[HostRequest]:
    """Return requests for one to three hosts in overlapping windows."""
    dice = random.Random(number)  # noqa: S311 - the same wishes in each run
    found = []
    for _ in range(count):
        minimum, maximum = sorted(dice.choices([1, 2, 3], [3, 2, 1], k=2))
        start = first + dice.randrange(24)
        wish = HostRequest(start=start, hours=dice.randint(1, 6), minimum=minimum, maximum=maximum)
        found.append(wish)
    return found


def book(number: int, url: str, count: int, first: int, protected: bool) -> Outcomes:
    """Create leases in random windows of the day that begins in ``first`` hours."""
    outcomes: Outcomes = Counter()
    # Without BEGIN IMMEDIATE, SQLite rejects a write after a read of old rows: count no leases.
    with _guards(active=protected), at_work(url, limits__project_leases=-1) as story:
        wait_for_all()
        for wish in random_requests(number, count, first):
            with count_outcome(outcomes, ADMITTED):
                reserve(story.runtime, wish)
    return outcomes


def book_by_locks(number: int, url: str, count: int) -> Outcomes:
    """Create leases like ``book``; on PostgreSQL, search again after the locks.

    Without that search, only the schema's guard would see rows that others commit meanwhile.
    """

    def look(*about: Any, limit: int | None, rotation: float, **_: int) -> Grabbed:
        return Grabbed(allocations.candidates(*about, limit=limit, rotation=rotation))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocations, "grab", look)
        patch.setattr(create, "book_at_once", lambda *_, **__: AtOnce.UNDECIDED)
        return book(number, url, count, first=1, protected=True)


def book_and_change(number: int, url: str, count: int) -> Outcomes:
    """Create leases, change them and delete some."""
    outcomes: Outcomes = Counter()
    mine: list[Lease] = []
    with at_work(url) as story:
        wait_for_all()
        for step, wish in enumerate(random_requests(number, count)):
            if step % 3 != 1:
                with count_outcome(outcomes, ADMITTED):
                    mine.append(reserve(story.runtime, wish))
            elif mine and step % 6 == 1:
                with count_outcome(outcomes, "changed"):
                    change(story.runtime, mine[-1], wish)
            elif mine:
                with count_outcome(outcomes, "deleted"):
                    delete_lease(story.runtime, mine.pop().id)
    return outcomes


def same_window(_number: int, url: str, count: int, maximum: int = 1) -> Outcomes:
    """Request a host, or up to ``maximum``, again and again in the same window.

    On a slow machine a request may end with Contention (503). Like a client, this repeats it.
    """
    outcomes: Outcomes = Counter()
    with at_work(url) as story:
        wait_for_all()
        for _ in range(count):
            with count_outcome(outcomes, ADMITTED):
                _reserve_patiently(story.runtime, HostRequest(maximum=maximum))
    return outcomes


def _reserve_patiently(runtime: Runtime, wish: HostRequest) -> Lease:
    for _ in range(_REPEATS):
        try:
            return reserve(runtime, wish)
        except Contention:
            continue
    return reserve(runtime, wish)


@contextmanager
def count_outcome(outcomes: Outcomes, success: str) -> Iterator[None]:
    """Count the outcome of a request; only rejections with a reason are caught."""
    try:
        yield
        outcomes[success] += 1
    except ClimateError as error:
        outcomes[type(error).__name__] += 1


@contextmanager
def _guards(*, active: bool) -> Iterator[None]:
    """Remove all guards of admission but the schema's, unless ``active``.

    No row is locked, candidates are not checked again, and they are chosen outside of the
    transaction that books them (on SQLite that transaction excludes others).
    """
    with pytest.MonkeyPatch.context() as patch:
        if not active:
            # A single statement has locks of its own.
            patch.setattr(create, "book_at_once", lambda *_, **__: AtOnce.UNDECIDED)
            patch.setattr(allocations, "lock", lambda _session, ids, *, wait: set(ids))
            patch.setattr(allocations, "still_free", lambda _session, _need, _busy, ids: set(ids))
            patch.setattr(engine_database, "_sqlite_begin", lambda it: it.exec_driver_sql("BEGIN"))
            patch.setattr(create, "admit", _admit_apart(admit))
        yield


def _admit_apart(admit: Any) -> Any:
    """Return an admission that searches in a transaction of its own."""

    def apart(session: Session, *arguments: Any) -> Any:
        with Session(session.get_bind(), info=session.info) as other:
            return admit(other, *arguments)

    return apart
