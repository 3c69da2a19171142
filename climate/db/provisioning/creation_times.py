"""How long climate's last creations of servers, volumes, networks and stacks took, in seconds."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.on_start import Kind
from climate.core.provisioning.lead_time import REMEMBERED
from climate.db.tables.provisioning import CreationTimesRow

_ROW = CreationTimesRow


def find_all(session: Session) -> Mapping[Kind, list[float]]:
    """Return the durations of the last creations by their kind, the oldest first."""
    query = sa.select(_ROW.resource_type, _ROW.source, _ROW.times)
    return {Kind(type_, source): times for type_, source, times in session.execute(query)}


def remember(session: Session, kind: Kind, seconds: float, now: datetime, kept: timedelta) -> None:
    """Add the duration of a creation. Only the last ``REMEMBERED`` durations of a kind are kept.

    With the first duration of a kind, delete those of kinds that climate has not created for
    ``kept``.
    """
    key = (_ROW.resource_type == kind.resource_type, _ROW.source == kind.source)
    times = session.scalar(sa.select(_ROW.times).where(*key).with_for_update())
    if times is not None:
        new = [*times, seconds][-REMEMBERED:]
        session.execute(sa.update(_ROW).where(*key).values(times=new, updated_at=now))
        return
    session.execute(sa.delete(_ROW).where(_ROW.updated_at < now - kept))
    # If another transaction inserts the first duration now, this one is retried.
    row = {**kind._asdict(), "times": [seconds], "updated_at": now}
    session.execute(sa.insert(_ROW), [row])
