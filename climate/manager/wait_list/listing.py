"""List the entries of the wait list in their order, with what each of them needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile

from climate.core.lease.model import Lease
from climate.core.lease.wait_list import Wait
from climate.core.matching.requirement import Requirement
from climate.core.page import Page, Part
from climate.db.leases import leases, waits
from climate.manager.admission.requirements import requirements_of
from climate.manager.process.runtime import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of the wait list.

    ``position`` counts from 1 in the list of the pool. ``needs`` contains each requirement with the
    resource type of its reservation. ``id`` says how many entries up to this one have the same
    rank. A marker contains it instead of the id of a lease, which other projects must not see.
    """

    id: int
    wait: Wait
    lease: Lease
    position: int
    needs: Sequence[tuple[str, Requirement]]

    @property
    def rank_at(self) -> datetime:
        """The sort key of the list."""
        return self.wait.rank_at


def find_entries(runtime: Runtime, pool: str | None, page: Page) -> Part[Entry]:
    """Return a page of the wait list of a pool, or of all pools, sorted by rank."""
    with runtime.database.snapshot() as session:
        found = waits.listed(session, pool, page)
        shown = found[: page.limit]
        known = leases.find_some(session, [wait.lease_id for wait in shown])
        positions = waits.positions(session, shown)
    items = [
        Entry(
            id=_equals(shown[: index + 1], page),
            wait=wait,
            lease=known[wait.lease_id],
            position=positions[wait.lease_id],
            needs=_needs(runtime, known[wait.lease_id]),
        )
        for index, wait in enumerate(shown)
    ]
    return Part(items=items, more=len(found) > page.limit)


def _equals(shown: Sequence[Wait], page: Page) -> int:
    """Return how many entries of the list, up to the last of ``shown``, have its rank."""
    last = shown[-1].rank_at
    count = sum(1 for _ in takewhile(lambda wait: wait.rank_at == last, reversed(shown)))
    if page.after is not None and page.after[0] == last:
        count += page.after[1]
    return count


def _needs(runtime: Runtime, lease: Lease) -> list[tuple[str, Requirement]]:
    return [
        (reservation.resource_type, part)
        for reservation in lease.reservations
        for part in requirements_of(runtime.catalog, reservation, lease.project_id)
        if part.maximum
    ]
