"""The facts that decide the state of a host, and an SQL expression for that state.

The state is one word for people, such as ``ready`` or ``off``. ``state_of`` computes the same state
in SQL as ``climate.core.provisioning.host_state`` in Python, so that queries can filter by state.
Resources that are not hosts have a state, too.
"""

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from climate.core.provisioning.host_state import IS_OFF, HostFacts, HostReport, HostState
from climate.core.provisioning.preparation import OPEN, PreparationState
from climate.core.provisioning.shutdown import ShutdownState
from climate.db.engine.types import any_of, chunks
from climate.db.tables.leases import RESOURCES, ResourceRow
from climate.db.tables.provisioning import PreparationRow, ReadinessRow, ShutdownRow

_HOST = aliased(ResourceRow)
_PREPARATION, _SHUTDOWN = aliased(PreparationRow), aliased(ShutdownRow)
_COLUMNS: tuple[Any, ...] = (
    _HOST.id,
    _HOST.reservable,
    ReadinessRow.set_aside,
    ReadinessRow.set_aside_at,
    ReadinessRow.up,
    ReadinessRow.seen_at,
    _PREPARATION.progress.label("preparation"),
    _PREPARATION.needed_at,
    _PREPARATION.ready_at,
    _SHUTDOWN.progress.label("shutdown"),
    _SHUTDOWN.off_at,
)


def find(
    session: Session,
    resource_ids: Collection[int],
    *,
    provisioning: bool,
    lease_id: str | None = None,
) -> dict[int, HostReport]:
    """Return the facts that decide the state of resources, with their times, by resource id.

    Ids that do not exist are left out. If ``lease_id`` is set, only preparations for that lease
    count. ``provisioning`` says whether provisioning is enabled. Without provisioning, climate does
    not update all facts, so a report has only ``reservable`` and the quarantine. Executes one
    statement per 10,000 ids.
    """
    query = _FOR_LEASE if lease_id is not None else _ALL
    query = query if provisioning else _WITHOUT_PROVISIONING
    more = {"lease_id": lease_id} if lease_id is not None and provisioning else {}
    to_report = _report if provisioning else _plain
    return {
        row.id: to_report(row)
        for ids in chunks(list(resource_ids))
        for row in session.execute(query, {"ids": ids, **more})
    }


def state_of(
    resource_id: sa.SQLColumnExpression[int], *, provisioning: bool
) -> sa.ColumnElement[str]:
    """Return an SQL expression for the state of a resource: the value of a HostState.

    ``resource_id`` is a column of the enclosing statement. ``provisioning`` says whether
    provisioning is enabled.
    """
    if not provisioning:
        known = ReadinessRow.resource_id == _HOST.id
        query = sa.select(_PLAIN_STATE).select_from(_HOST).outerjoin(ReadinessRow, known)
        query = query.where(_HOST.id == resource_id)
    else:
        query = _joined(sa.select(_STATE)).where(_HOST.id == resource_id)
    inner = (_HOST, ReadinessRow, _PREPARATION, _SHUTDOWN)
    return query.correlate_except(*inner).scalar_subquery()


def in_states(states: Collection[HostState], *, provisioning: bool) -> list[sa.ColumnElement[bool]]:
    """Return SQL conditions on ResourceRow: the state of the resource is one of ``states``.

    If ``states`` is empty, there is no condition, and any state is allowed. ``provisioning`` says
    whether provisioning is enabled.
    """
    if not states:
        return []
    state = state_of(ResourceRow.id, provisioning=provisioning)
    return [state.in_([state.value for state in states])]


def _first(
    row: type[PreparationRow | ShutdownRow], by: str, lease_id: sa.BindParameter[str] | None = None
) -> sa.ScalarSelect[str]:
    """Return a subquery for the id of the first task of a host; NULL if the host has no task.

    ``row`` is the class of the tasks: preparations or shutdowns. The first task has the smallest
    value in the column named ``by``. Only tasks that are not over count. If ``lease_id`` is set,
    only tasks for that lease count. The host is the row of ``_HOST`` in the enclosing statement.
    """
    task: Any = aliased(row)
    tasks = sa.select(task.id).where(task.resource_id == _HOST.id, task.over_at.is_(None))
    if lease_id is not None:
        tasks = tasks.where(task.lease_id == lease_id)
    return tasks.order_by(getattr(task, by), task.id).limit(1).correlate(_HOST).scalar_subquery()


def _joined(query: sa.Select[Any], lease_id: sa.BindParameter[str] | None = None) -> sa.Select[Any]:
    """Join a query with three rows for each host: readiness, first preparation, first shutdown.

    The readiness is what climate knows about the host. Only preparations and shutdowns that are not
    over count. If ``lease_id`` is set, only preparations for that lease count.
    """
    query = query.select_from(_HOST).outerjoin(ReadinessRow, ReadinessRow.resource_id == _HOST.id)
    first_tasks = (
        (_PREPARATION, _first(PreparationRow, "needed_at", lease_id)),
        (_SHUTDOWN, _first(ShutdownRow, "wanted_at")),
    )
    for task, first in first_tasks:
        query = query.outerjoin(task, sa.and_(task.resource_id == _HOST.id, task.id == first))
    return query


def _plain(row: Any) -> HostReport:  # noqa: ANN401 - a row of _WITHOUT_PROVISIONING
    facts = HostFacts(reservable=row.reservable, is_quarantined=row.set_aside is not None)
    return HostReport(facts=facts, set_aside=row.set_aside, set_aside_at=row.set_aside_at)


def _report(row: Any) -> HostReport:  # noqa: ANN401 - a row of _COLUMNS
    facts = HostFacts(
        reservable=row.reservable,
        is_quarantined=row.set_aside is not None,
        preparation=PreparationState(row.preparation) if row.preparation else None,
        shutdown=ShutdownState(row.shutdown) if row.shutdown else None,
        up=row.up,
    )
    names = ("needed_at", "ready_at", "seen_at", "off_at", "set_aside", "set_aside_at")
    return HostReport(facts=facts, **{name: getattr(row, name) for name in names})


_READY, _PREPARING, _OFF, _SET_ASIDE, _FAILING = (sa.literal(state.value) for state in HostState)
_STATE = sa.case(
    (ReadinessRow.set_aside.is_not(None), _SET_ASIDE),
    (_HOST.reservable.is_(False), _FAILING),
    (_PREPARATION.progress == PreparationState.FAILED.value, _FAILING),
    (_PREPARATION.progress.in_([state.value for state in OPEN]), _PREPARING),
    (_PREPARATION.progress == PreparationState.READY.value, _READY),
    (_SHUTDOWN.progress == ShutdownState.WAKING.value, _PREPARING),
    (_SHUTDOWN.progress.in_([state.value for state in IS_OFF]), _OFF),
    (ReadinessRow.up.is_(False), _OFF),
    else_=_READY,
)
_PLAIN_STATE = sa.case(
    (ReadinessRow.set_aside.is_not(None), _SET_ASIDE),
    (_HOST.reservable.is_(True), _READY),
    else_=_FAILING,
)
# Built once: SQLAlchemy takes longer to build them than the database to run them.
_ALL = _joined(sa.select(*_COLUMNS)).where(any_of(_HOST.id, "ids"))
_FOR_LEASE = _joined(sa.select(*_COLUMNS), sa.bindparam("lease_id", type_=sa.String)).where(
    any_of(_HOST.id, "ids")
)
_WITHOUT_PROVISIONING = (
    sa.select(
        RESOURCES.c.id, RESOURCES.c.reservable, ReadinessRow.set_aside, ReadinessRow.set_aside_at
    )
    .outerjoin(ReadinessRow, ReadinessRow.resource_id == RESOURCES.c.id)
    .where(any_of(RESOURCES.c.id, "ids"))
)
