"""How far the self-audit is with each invariant, and what it knows of it.

Whoever moves ``next_at`` on has the turn to look until then; what it stores counts only if nobody
took the turn meanwhile. So one manager looks at a time, and what is found is told once.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, Session, mapped_column

from climate.core.invariants import Verdict
from climate.db.tables import Base
from climate.db.types import MARIADB


class SelfAuditRow(Base):
    """A look at an invariant, by its name: where the next one begins, and what is known so far."""

    __tablename__ = "self_audit"
    __table_args__ = (MARIADB,)

    name: Mapped[str] = mapped_column(sa.String(32), primary_key=True)
    next_at: Mapped[datetime]
    position: Mapped[str] = mapped_column(sa.String(36))
    found: Mapped[list[Any]]
    broken_since: Mapped[datetime | None]


@dataclass(frozen=True, slots=True)
class Turn:
    """The turn to look at an invariant until ``until``, from ``position`` on."""

    name: str
    until: datetime
    position: str
    verdict: Verdict


def broken(session: Session) -> set[str]:
    """Return the names of the looks that found something wrong."""
    query = sa.select(SelfAuditRow.name).where(SelfAuditRow.broken_since.is_not(None))
    return set(session.scalars(query))


def is_due(session: Session, name: str, now: datetime) -> bool:
    """Tell whether nobody has the turn."""
    query = sa.select(SelfAuditRow.next_at).where(SelfAuditRow.name == name)
    next_at = session.scalar(query)
    return next_at is None or next_at <= now


def take_turn(session: Session, name: str, now: datetime, until: datetime) -> Turn | None:
    """Have the turn until then, None if somebody else has it."""
    query = sa.select(SelfAuditRow).where(SelfAuditRow.name == name).with_for_update()
    row = session.scalars(query.execution_options(populate_existing=True)).one_or_none()
    if row is None:
        # Whoever does the same at this moment fails on the key, runs again and finds our row.
        row = SelfAuditRow(name=name, position="", found=[], broken_since=None)
        session.add(row)
    elif row.next_at > now:
        return None
    row.next_at = until
    return Turn(name, until, row.position, Verdict(row.broken_since, tuple(row.found)))


def store(session: Session, turn: Turn, position: str, verdict: Verdict) -> bool:
    """Store what is known now; False if the turn is not ours any more."""
    result = session.execute(
        sa.update(SelfAuditRow)
        .where(SelfAuditRow.name == turn.name, SelfAuditRow.next_at == turn.until)
        .values(position=position, found=list(verdict.found), broken_since=verdict.broken_since)
    )
    return bool(result.rowcount)  # type: ignore[attr-defined]
