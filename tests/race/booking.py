"""What each process of a crowd does: ask for hosts, with or without what keeps others off."""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy.orm import Session

from climate.core.errors import ClimateError
from climate.core.lease.change import Change
from climate.core.lease.model import Lease
from climate.db.engine import database as engine_database
from climate.db.resources import allocations
from climate.db.resources.allocations import Grabbed
from climate.manager.admission.requirements import ReservationRequest
from climate.manager.leases import create
from climate.manager.leases.create import LeaseRequest, Owner, create_lease
from climate.manager.leases.delete import delete_lease
from climate.manager.leases.reservation_changes import ReservationChange
from climate.manager.leases.update import LeaseChange, update_lease
from climate.manager.process.runtime import Runtime
from tests.race.crowd import at_work, wait_for_all

OWNER = Owner(user_id="user", project_id="project")

Outcomes = Counter[str]
ADMITTED = "admitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Hosts from ``start`` hours after now, for ``hours``."""

    start: int = 1
    hours: int = 1
    minimum: int = 1
    maximum: int = 1

    def params(self) -> dict[str, Any]:
        """Return what a reservation asks for."""
        anything = {"hypervisor_properties": "", "resource_properties": "", "before_end": "default"}
        return {"min": self.minimum, "max": self.maximum, **anything}


def ask(runtime: Runtime, wish: Wish) -> Lease:
    """Ask for a lease."""
    begin = runtime.clock.now() + timedelta(hours=wish.start)
    request = LeaseRequest(
        name="lease",
        start=begin,
        end=begin + timedelta(hours=wish.hours),
        reservations=(ReservationRequest(resource_type="physical:host", params=wish.params()),),
    )
    return create_lease(runtime, OWNER, request)


def change(runtime: Runtime, lease: Lease, wish: Wish) -> Lease:
    """Ask that a lease becomes another one."""
    begin = runtime.clock.now() + timedelta(hours=wish.start)
    dates = Change(start=begin, end=begin + timedelta(hours=wish.hours))
    reservation = ReservationChange(
        id=lease.reservations[0].id, resource_type=None, params=wish.params()
    )
    return update_lease(runtime, lease.id, LeaseChange(dates=dates, reservations=(reservation,)))


def random_wishes(number: int, count: int, first: int = 1) -> list[Wish]:
    """Return wishes for one to three hosts in windows that overlap those of everybody else."""
    dice = random.Random(number)  # noqa: S311 - the same wishes in each run
    found = []
    for _ in range(count):
        minimum, maximum = sorted(dice.choices([1, 2, 3], [3, 2, 1], k=2))
        start = first + dice.randrange(24)
        wish = Wish(start=start, hours=dice.randint(1, 6), minimum=minimum, maximum=maximum)
        found.append(wish)
    return found


def book(number: int, url: str, count: int, first: int, protected: bool) -> Outcomes:
    """Ask for leases in random windows of the day that begins in ``first`` hours."""
    outcomes: Outcomes = Counter()
    with _protection(is_there=protected), at_work(url) as story:
        wait_for_all()
        for wish in random_wishes(number, count, first):
            with noted(outcomes, ADMITTED):
                ask(story.runtime, wish)
    return outcomes


def book_by_locks(number: int, url: str, count: int) -> Outcomes:
    """Ask for leases as ``book`` does; on PostgreSQL, too, whoever has locks looks again.

    Else it leaves what others commit between its look and its locks, a moment later, to the guard.
    """
    kept = allocations.grab

    def look(*about: Any, limit: int | None, rotation: float, **_: int) -> Grabbed:
        return Grabbed(allocations.candidates(*about, limit=limit, rotation=rotation))

    allocations.grab = look
    try:
        return book(number, url, count, first=1, protected=True)
    finally:
        allocations.grab = kept


def book_and_change(number: int, url: str, count: int) -> Outcomes:
    """Ask for leases, change them to others, and give some back."""
    outcomes: Outcomes = Counter()
    mine: list[Lease] = []
    with at_work(url) as story:
        wait_for_all()
        for step, wish in enumerate(random_wishes(number, count)):
            if step % 3 != 1:
                with noted(outcomes, ADMITTED):
                    mine.append(ask(story.runtime, wish))
            elif mine and step % 6 == 1:
                with noted(outcomes, "changed"):
                    change(story.runtime, mine[-1], wish)
            elif mine:
                with noted(outcomes, "deleted"):
                    delete_lease(story.runtime, mine.pop().id)
    return outcomes


def same_window(_number: int, url: str, count: int, maximum: int = 1) -> Outcomes:
    """Ask again and again for a host, or up to ``maximum``, in the window everybody wants."""
    outcomes: Outcomes = Counter()
    with at_work(url) as story:
        wait_for_all()
        for _ in range(count):
            with noted(outcomes, ADMITTED):
                ask(story.runtime, Wish(maximum=maximum))
    return outcomes


@contextmanager
def noted(outcomes: Outcomes, success: str) -> Iterator[None]:
    """Count what came of a request; what is not a refusal with a reason is not caught."""
    try:
        yield
        outcomes[success] += 1
    except ClimateError as error:
        outcomes[type(error).__name__] += 1


@contextmanager
def _protection(*, is_there: bool) -> Iterator[None]:
    """Take away all that admission does against others; what is left is the schema's guard.

    Nothing is locked, what was chosen is believed without a second look, and the choice is made
    outside the transaction that books it (on SQLite that transaction shuts others out).
    """
    kept = allocations.lock, allocations.still_free, engine_database._sqlite_begin, create.admit
    if not is_there:
        allocations.lock = lambda _session, ids, *, wait: set(ids)
        allocations.still_free = lambda _session, _requirement, _busy, among: set(among)
        engine_database._sqlite_begin = lambda connection: connection.exec_driver_sql("BEGIN")
        create.admit = _admit_apart(create.admit)
    try:
        yield
    finally:
        allocations.lock, allocations.still_free, engine_database._sqlite_begin, create.admit = kept


def _admit_apart(admit: Any) -> Any:
    """Return an admission that looks around in a transaction of its own."""

    def apart(session: Session, *arguments: Any) -> Any:
        with Session(session.get_bind(), info=session.info) as other:
            return admit(other, *arguments)

    return apart
