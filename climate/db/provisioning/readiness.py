"""What climate knows about hosts: durations of preparations, reports of the cloud, quarantine.

A preparation makes a host ready for a lease. From the durations of past preparations, climate
predicts the next duration. The cloud reports whether a host is up. A host in quarantine
(``set_aside``) has failed, and no new lease can book it. Each host has at most one row.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.provisioning.lead_time import REMEMBERED
from climate.core.provisioning.readiness import HostKnown, Seen
from climate.db.tables.bulk import record
from climate.db.tables.provisioning import ReadinessRow


def find(session: Session, resource_id: int) -> HostKnown:
    """Return what climate knows about a host; default values if the host has no row."""
    row = session.get(ReadinessRow, resource_id, populate_existing=True)
    if row is None:
        return HostKnown(resource_id=resource_id)
    return record(HostKnown, row)


def times(session: Session) -> dict[int, tuple[str, list[float]]]:
    """Return the hardware class and the preparation durations of each host, by resource id.

    The durations are in seconds, the oldest first. Hosts without durations are left out.
    """
    query = sa.select(ReadinessRow.resource_id, ReadinessRow.hardware, ReadinessRow.times)
    return {id_: (hardware, times) for id_, hardware, times in session.execute(query) if times}


def remember(session: Session, resource_id: int, hardware: str, seconds: float) -> None:
    """Add the duration of a finished preparation, in seconds, to the stored durations of a host.

    Only the last ``REMEMBERED`` durations are kept. The hardware class of the host is stored, too.
    """
    before = find(session, _locked(session, resource_id)).times
    _set(session, resource_id, hardware=hardware, times=[*before, seconds][-REMEMBERED:])


def set_aside(session: Session, resource_id: int, reason: str | None, now: datetime) -> None:
    """Quarantine a host since ``now`` for ``reason``; if ``reason`` is None, end its quarantine."""
    _locked(session, resource_id)
    _set(session, resource_id, set_aside=reason, set_aside_at=now if reason else None)


def all_set_aside(session: Session) -> set[int]:
    """Return the ids of the hosts in quarantine."""
    query = sa.select(ReadinessRow.resource_id).where(ReadinessRow.set_aside.is_not(None))
    return set(session.scalars(query))


def see(session: Session, seen: Mapping[int, Seen]) -> None:
    """Store the cloud's last report on each host: whether the host is up, and the report's time.

    ``seen`` contains the reports by resource id.
    """
    known = set(session.scalars(sa.select(ReadinessRow.resource_id)))
    new = [
        {**_blank(id_), "up": report.up, "seen_at": report.at}
        for id_, report in seen.items()
        if id_ not in known
    ]
    if new:
        session.execute(sa.insert(ReadinessRow), new)
    for report in set(seen.values()):
        ids = {id_ for id_, other in seen.items() if other == report} & known
        if ids:
            hosts = sa.update(ReadinessRow).where(ReadinessRow.resource_id.in_(ids))
            session.execute(hosts.values(up=report.up, seen_at=report.at))


def _locked(session: Session, resource_id: int) -> int:
    """Lock the row of a host, or insert the row if it is missing. Return ``resource_id``."""
    query = sa.select(ReadinessRow.resource_id).where(ReadinessRow.resource_id == resource_id)
    if session.scalar(query.with_for_update()) is None:
        session.execute(sa.insert(ReadinessRow), [_blank(resource_id)])
    return resource_id


def _blank(resource_id: int) -> dict[str, Any]:
    """Return the columns of a new row for a host about which nothing is known."""
    return {"resource_id": resource_id, "hardware": "", "times": []}


def _set(session: Session, resource_id: int, **values: Any) -> None:
    host = sa.update(ReadinessRow).where(ReadinessRow.resource_id == resource_id)
    session.execute(host.values(**values))
