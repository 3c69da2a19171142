"""How long cleanings of bare-metal nodes took, and which of them climate measures now."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.provisioning.cleaning import Cleaning
from climate.core.provisioning.lead_time import REMEMBERED
from climate.db.engine.types import any_of, chunks
from climate.db.tables.bulk import record, values
from climate.db.tables.provisioning import CleaningRow, CleaningTimesRow

_ROW = CleaningTimesRow
_COLUMNS = "resource_id lease_id resource_class began_at seen_at"


def begin(session: Session, cleanings: Sequence[Cleaning]) -> None:
    """Store new measurements of nodes.

    The measurement of a node after the same lease stays, as the end of a lease may run repeatedly.
    That after an earlier lease is removed.
    """
    for part in chunks(sorted(cleanings, key=lambda cleaning: cleaning.resource_id)):
        by_node = {cleaning.resource_id: cleaning for cleaning in part}
        query = sa.select(CleaningRow.resource_id, CleaningRow.lease_id)
        rows = session.execute(query.where(_are(by_node)))
        present: dict[int, str] = dict(rows.all())
        same = {id_ for id_, lease_id in present.items() if lease_id == by_node[id_].lease_id}
        if earlier := present.keys() - same:
            session.execute(sa.delete(CleaningRow).where(_are(earlier)))
        if new := [values(by_node[id_], _COLUMNS) for id_ in by_node if id_ not in same]:
            session.execute(sa.insert(CleaningRow), new)


def find_all(session: Session) -> list[Cleaning]:
    """Return all measurements that are not finished."""
    return [record(Cleaning, row) for row in session.scalars(sa.select(CleaningRow))]


def see(session: Session, resource_ids: Collection[int], now: datetime) -> None:
    """Store that the nodes are in cleaning at ``now``."""
    for part in chunks(sorted(resource_ids)):
        session.execute(sa.update(CleaningRow).where(_are(part)).values(seen_at=now))


def remove(session: Session, cleaning: Cleaning) -> bool:
    """Remove a measurement; return False if another process has removed it already."""
    of_node = CleaningRow.resource_id == cleaning.resource_id
    this = sa.delete(CleaningRow).where(of_node, CleaningRow.lease_id == cleaning.lease_id)
    return bool(session.execute(this).rowcount)  # type: ignore[attr-defined]


def discard(session: Session, lease_ids: Collection[str]) -> None:
    """Remove the measurements after these leases."""
    session.execute(sa.delete(CleaningRow).where(any_of(CleaningRow.lease_id, sorted(lease_ids))))


def times(session: Session) -> Mapping[str, list[float]]:
    """Return the durations of the last cleanings in seconds by resource class, the oldest first."""
    rows = session.execute(sa.select(_ROW.resource_class, _ROW.times))
    return dict(rows.all())


def remember(session: Session, resource_class: str, seconds: float) -> None:
    """Add the duration of a cleaning; only the last ``REMEMBERED`` of a class are kept."""
    of_class = _ROW.resource_class == resource_class
    present = session.scalar(sa.select(_ROW.times).where(of_class).with_for_update())
    if present is not None:
        new = [*present, seconds][-REMEMBERED:]
        session.execute(sa.update(_ROW).where(of_class).values(times=new))
        return
    # If another transaction inserts the first duration now, this one is retried.
    row = {"resource_class": resource_class, "times": [seconds]}
    session.execute(sa.insert(_ROW), [row])


def _are(resource_ids: Collection[int]) -> sa.ColumnElement[bool]:
    return any_of(CleaningRow.resource_id, sorted(resource_ids))
