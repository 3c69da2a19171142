"""Statements that the tables of preparations and shutdowns share.

Both are tables of tasks. climate stores a task for provisioners, programs that power hosts on and
off. A provisioner claims the task for a limited time, and reports its progress. When climate no
longer needs the task, it sets ``over_at``: the task is then over.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.errors import NotFound
from climate.core.page import Page, Part, TaskFilter
from climate.core.provisioning.task import Task
from climate.db.resources.pages import Column, cut
from climate.db.tables.bulk import certify, insert, record
from climate.db.tables.provisioning import TaskRow

T = TypeVar("T", bound=Task[Any])


@dataclass(frozen=True, slots=True)
class TaskTable(Generic[T]):
    """The statements for one table of provisioners' tasks: preparations or shutdowns.

    ``row`` is the mapped class of the table, ``task`` the dataclass of its tasks, and ``state`` the
    enumeration of their states. ``by`` is the column by which lists of tasks are sorted.
    """

    row: type[TaskRow]
    task: type[T]
    state: type[StrEnum]
    by: Column

    def get(self, session: Session, id_: str, *, lock: bool = False) -> T:
        """Return the task with this id. Raises NotFound.

        If ``lock`` is set, the row of the task stays locked until the transaction ends.
        """
        query = sa.select(self.row).where(self.row.id == id_)
        query = query.execution_options(populate_existing=True)
        row = session.scalars(query.with_for_update() if lock else query).one_or_none()
        if lock:
            certify(session, self.row, [id_])
        if row is None:
            raise NotFound(f"There is no {self.task.noun.lower()} {id_}")
        return self.of(row)

    def find(
        self, session: Session, wanted: TaskFilter, page: Page, *more: sa.ColumnElement[bool]
    ) -> Part[T]:
        """Return the tasks that match the filter ``wanted``, sorted by the column ``by``.

        ``page`` selects a part of the list. ``more`` contains further SQL conditions for the tasks.
        """
        query = sa.select(self.row).where(*self._conditions(wanted), *more)
        rows = session.scalars(cut(query, self.by, self.row.id, page)).all()
        items = [self.of(row) for row in rows[: page.limit]]
        return Part(items=items, more=len(rows) > page.limit)

    def select(self, session: Session, *conditions: sa.ColumnElement[bool]) -> list[T]:
        """Return all tasks that meet every SQL condition, sorted by the column ``by``."""
        query = sa.select(self.row).where(*conditions).order_by(self.by, self.row.id)
        return [self.of(row) for row in session.scalars(query)]

    def insert(self, session: Session, tasks: Iterable[T]) -> None:
        """Insert new tasks into the table."""
        insert(session, (self.row, [_values(task) for task in tasks]))

    def store(self, session: Session, task: T) -> None:
        """Write all fields of a changed task to its row, which the caller has locked."""
        session.execute(sa.update(self.row).where(self.row.id == task.id).values(**_values(task)))

    def end(self, session: Session, now: datetime, *which: sa.ColumnElement[bool]) -> bool:
        """Mark tasks as over since ``now``; return whether any task was changed.

        Changes the tasks that are not over yet and meet all SQL conditions in ``which``. Also ends
        the claims on these tasks.
        """
        ended = sa.update(self.row).where(self.row.over_at.is_(None), *which)
        result = session.execute(ended.values(over_at=now, claimed_until=None))
        return bool(result.rowcount)  # type: ignore[attr-defined]

    def forget(self, session: Session, before: datetime) -> None:
        """Delete the tasks whose ``over_at`` is earlier than ``before``."""
        session.execute(sa.delete(self.row).where(self.row.over_at < before))

    def of(self, row: TaskRow) -> T:
        """Convert a row of the table to a task."""
        return record(self.task, row, progress=self.state(row.progress))

    def _conditions(self, wanted: TaskFilter) -> list[sa.ColumnElement[bool]]:
        """Return the SQL conditions for the filter ``wanted``, except for its ``lease_id``."""
        compared = [(self.row.node, wanted.node), (self.row.hardware, wanted.hardware)]
        conditions = [column == value for column, value in compared if value is not None]
        is_not_over, expiry = self.row.over_at.is_(None), self.row.claimed_until
        if wanted.states:
            in_state = sa.and_(is_not_over, self.row.progress.in_(wanted.states))
            is_over = sa.or_(in_state, ~is_not_over)
            conditions.append(is_over if "over" in wanted.states else in_state)
        if wanted.claimable_at is not None:
            is_open = self.row.progress.in_([state.value for state in self.task.open_states])
            is_unclaimed = sa.or_(expiry.is_(None), expiry <= wanted.claimable_at)
            conditions += [is_not_over, is_open, is_unclaimed]
        return conditions


def _values(task: Task[Any]) -> dict[str, Any]:
    return {**asdict(task), "progress": task.progress.value}
