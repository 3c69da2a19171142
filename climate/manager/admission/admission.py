"""Admission: which resources a lease gets, decided and taken in one transaction.

Per requirement one statement finds candidates (rotated, so that parallel requests do not
collide), for shares one more tells what is left of them, a pure function chooses, one statement
locks what was chosen, and what was chosen is looked at again by statements that see what others
have committed since (PostgreSQL finds and locks whole resources in one statement, which also tells
which ones need that second look). The schema's guard is the last word. The number of statements
depends on neither hosts nor bookings: where a handful of candidates does not do, more are looked
at in two steps.

"Too few" is answered from committed bookings alone: resources that somebody else merely has
locked count as candidates, and losing them means LostRace, so the transaction is run again.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from climate.core.errors import NotEnoughResources
from climate.core.packing import Units
from climate.core.selection import Preference
from climate.core.window import Window
from climate.db import allocations
from climate.db.engine import LostRace, is_patient
from climate.manager.admission.candidates import Search, Wanted


def admit(
    session: Session,
    wanted: Sequence[Wanted],
    busy: Window,
    preference: Preference,
    locked: Collection[int] = (),
) -> tuple[Units, ...]:
    """Choose and lock resources for all of ``wanted`` over ``busy``, or for none.

    ``locked`` are ours already; then no other lock is waited for, as that would be out of order.
    Returns the new units of each by resource id (``kept`` not included); nothing is stored yet.
    Raises NotEnoughResources.
    """
    # Who waits for locks takes them in order, all at once.
    locking = not (locked or is_patient(session))
    search = Search(session, wanted, busy, preference, locking=locking)
    chosen = _lock_chosen(search, locked)
    for want, units in zip(wanted, chosen, strict=True):
        if units and not search.is_still_there(want, units):
            raise LostRace
    if not search.leaves_enough(chosen):
        raise LostRace
    return chosen


@dataclass(frozen=True, slots=True)
class InUse:
    """Resources that it must be, as they are in use.

    ``wanted_over`` is what is wanted if they have to stay over another window, None if they cannot.
    """

    ids: Collection[int]
    wanted_over: Callable[[Window], Sequence[Wanted] | None]


class Shortage(NotEnoughResources):
    """Too little of what ``wanted[index]`` asks for, or (None) only of all of it at once."""

    def __init__(
        self,
        message: str,
        wanted: Sequence[Wanted],
        index: int | None,
        details: Mapping[str, int],
        in_use: InUse | None = None,
    ) -> None:
        """Keep what was wanted, for whoever explains the refusal."""
        missing = details["asked"] - details["free"] if details else None
        number = None if index is None else _number(wanted, index)
        super().__init__(message, {"reservation": number, **details, "missing": missing})
        self.wanted = wanted
        self.index = index
        self.in_use = in_use


def _number(wanted: Sequence[Wanted], index: int) -> int:
    """Return which reservation of the lease it is that ``wanted[index]`` is for."""
    ids = list(dict.fromkeys(want.reservation_id for want in wanted))
    return ids.index(wanted[index].reservation_id)


def would_take(
    session: Session, wanted: Sequence[Wanted], busy: Window, preference: Preference
) -> tuple[Units, ...] | None:
    """Return what ``wanted`` would get now, None if not all of it can be had.

    Nothing is locked, so it may be gone at once.
    """
    search = Search(session, wanted, busy, preference)
    while (chosen := search.choose()) is None:
        if not search.look():
            return None
    return chosen


def _lock_chosen(search: Search, held: Collection[int]) -> tuple[Units, ...]:
    """Choose and lock, falling back on others for those that are locked."""
    patient = is_patient(search.session) and not held
    locked = set(held) | search.locked
    lost: set[int] = set()
    while True:
        chosen = search.choose(lost)
        if chosen is None and search.look():
            continue
        if chosen is None and lost and not locked and not patient:
            # There are no others: nothing is gained by trying again rather than waiting, once (who
            # waited for what was removed meanwhile has to look again).
            patient, lost = True, set()
            continue
        if chosen is None and lost:
            raise LostRace
        if chosen is None:
            raise _shortage(search)
        missing = {id_ for units in chosen for id_ in units} - locked
        got = allocations.lock(search.session, missing, wait=patient) if missing else set()
        locked |= got
        if got == missing:
            break
        lost |= missing - got
    short = any(
        sum(units.values()) < want.maximum
        for units, want in zip(chosen, search.wanted, strict=True)
    )
    if lost and short:
        raise LostRace  # we have enough, but might get more once the others are done
    return chosen


def _shortage(search: Search) -> Shortage:
    """Say which requirement failed and how many matched and were free."""
    busy = search.busy
    for index, want in enumerate(search.wanted):
        free = search.nearest(index)
        if free < want.minimum:
            requirement = want.requirement
            matching = allocations.count(search.session, requirement)
            there = free + sum(want.kept.values())
            noun = requirement.noun
            return Shortage(
                f"Not enough {noun if requirement.is_whole else 'units'} available:"
                f" at least {requirement.minimum} asked for,"
                f" {matching} {'match' if requirement.is_whole else f'{noun} match'}"
                f" the requirements, {there} of them free from {busy.start:%Y-%m-%d %H:%M}"
                f" to {busy.end:%Y-%m-%d %H:%M} UTC (cleaning time included)",
                search.wanted,
                index,
                {"asked": requirement.minimum, "matching": matching, "free": there},
            )
    return Shortage(
        f"Not enough {search.wanted[0].requirement.noun} available: each reservation could be"
        " served alone, but not all at once",
        search.wanted,
        None,
        {},
    )


def rows(wanted: Sequence[Wanted], taken: Sequence[Units], busy: Window) -> list[dict[str, object]]:
    """Return the allocations to store for ``taken``: the units of each by resource id."""
    return [
        row
        for want, chosen in zip(wanted, taken, strict=True)
        for resource_id, units in chosen.items()
        for row in allocation_rows(want, resource_id, units, busy)
    ]


def allocation_rows(
    want: Wanted, resource_id: int, units: int, busy: Window
) -> list[dict[str, object]]:
    """Return the allocation of a whole resource, or those of each class of ``units`` shares."""
    row = {
        "resource_id": resource_id,
        "reservation_id": want.reservation_id,
        "start_at": busy.start,
        "busy_until": busy.end,
        "resource_class": None,
        "amount": None,
    }
    return [
        {**row, "resource_class": name, "amount": amount * units}
        for name, amount in want.requirement.amounts.items()
    ] or [row]
