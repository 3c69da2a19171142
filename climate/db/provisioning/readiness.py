"""What is known of how hosts get ready: their times, whether they are up, and who is set aside."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.provisioning.lead_time import REMEMBERED
from climate.core.provisioning.readiness import HostKnown, Seen
from climate.db.tables.provisioning import ReadinessRow


def find(session: Session, resource_id: int) -> HostKnown:
    """Return what is known of a host; of most, little."""
    row = session.get(ReadinessRow, resource_id, populate_existing=True)
    if row is None:
        return HostKnown(resource_id=resource_id)
    values = {name: getattr(row, name) for name in HostKnown.__dataclass_fields__}
    return HostKnown(**values)


def times(session: Session) -> dict[int, tuple[str, list[float]]]:
    """Return the class of each host of which any times are known, and these, the oldest first."""
    query = sa.select(ReadinessRow.resource_id, ReadinessRow.hardware, ReadinessRow.times)
    return {id_: (hardware, found) for id_, hardware, found in session.execute(query) if found}


def remember(session: Session, resource_id: int, hardware: str, seconds: float) -> None:
    """Add a time to the last ones of a host."""
    before = find(session, _locked(session, resource_id)).times
    _set(session, resource_id, hardware=hardware, times=[*before, seconds][-REMEMBERED:])


def set_aside(session: Session, resource_id: int, reason: str | None, now: datetime) -> None:
    """Say why a host is booked for nobody, or (None) that it is again."""
    _locked(session, resource_id)
    _set(session, resource_id, set_aside=reason, set_aside_at=now if reason else None)


def all_set_aside(session: Session) -> set[int]:
    """Return the ids of the hosts that are set aside."""
    query = sa.select(ReadinessRow.resource_id).where(ReadinessRow.set_aside.is_not(None))
    return set(session.scalars(query))


def see(session: Session, seen: Mapping[int, Seen]) -> None:
    """Note what the cloud says of hosts: a statement for each different thing that it says."""
    known = set(session.scalars(sa.select(ReadinessRow.resource_id)))
    new = [
        {**_blank(id_), "up": one.up, "seen_at": one.at}
        for id_, one in seen.items()
        if id_ not in known
    ]
    if new:
        session.execute(sa.insert(ReadinessRow), new)
    for said in set(seen.values()):
        ids = {id_ for id_, one in seen.items() if one == said} & known
        if ids:
            session.execute(
                sa.update(ReadinessRow)
                .where(ReadinessRow.resource_id.in_(ids))
                .values(up=said.up, seen_at=said.at)
            )


def _locked(session: Session, resource_id: int) -> int:
    """Have a row, and have it for oneself."""
    query = sa.select(ReadinessRow.resource_id).where(ReadinessRow.resource_id == resource_id)
    if session.scalar(query.with_for_update()) is None:
        session.execute(sa.insert(ReadinessRow), [_blank(resource_id)])
    return resource_id


def _blank(resource_id: int) -> dict[str, Any]:
    return {"resource_id": resource_id, "hardware": "", "times": []}


def _set(session: Session, resource_id: int, **values: Any) -> None:
    session.execute(
        sa.update(ReadinessRow).where(ReadinessRow.resource_id == resource_id).values(**values)
    )
