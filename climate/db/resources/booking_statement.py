"""One SQL statement that finds, locks and books whole resources, and stores their lease.

The statement is for PostgreSQL. It needs one round trip to the database instead of five, and no
transaction block. It decides only the common case: one requirement, for whole resources. If it
cannot decide, it stores nothing, and the caller uses the statements of
``climate.db.resources.allocations`` instead.

All parts of the statement see the same snapshot of the database. So a booking that another
transaction commits during the statement is invisible to the search. The constraint
``allocations_no_overlap`` then makes the statement fail, for bookings of whole resources and of
shares. The statement never waits for a row lock: it skips locked resources.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from climate.core.matching.requirement import Requirement
from climate.core.window import Window
from climate.db.engine.database import Database
from climate.db.engine.driver_statement import POSTGRESQL, DriverStatement, convert
from climate.db.engine.types import array_text, encode_json
from climate.db.resources import fitting
from climate.db.resources.fitting import Shape, shape
from climate.db.resources.properties.conditions import generalised
from climate.db.tables.bulk import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLeases:
    """The limit on the open leases of a project: at most ``most``, counted at ``now``.

    If the project has limits of its own, the statement does not decide.
    """

    project_id: str
    most: int
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingPlan:
    """A lease to store if its only reservation can book whole resources.

    - ``busy``: the window to book, including the cleaning time.
    - ``limit``: the number of candidates to search for, more than the maximum of the requirement.
    - ``rotation``: where the search starts (see ``allocations.candidates``).
    - ``among``: ids of the only resources to try, at least the maximum of the requirement (None:
      search all resources). If shares of them are booked, the constraint makes the statement fail.
      The statement does not decide if too few of them are free. ``limit`` and ``rotation`` do not
      matter then.
    - ``rows``: the rows of the lease, its reservation, its events and its notification. Each table
      comes after the tables to which it refers.
    - ``names``: the properties in the query that not every resource has. Each of them must exist,
      and must not be private unless ``sees_private`` is set.
    - ``open_leases``: a limit to check (None: there is none).
    """

    requirement: Requirement
    reservation_id: str
    busy: Window
    limit: int
    rotation: float
    rows: Sequence[Rows]
    names: Collection[str] = ()
    sees_private: bool = False
    among: Sequence[int] | None = None
    open_leases: OpenLeases | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the statement decided.

    If ``is_booked`` is set, everything is stored. Otherwise nothing is stored. Then ``free`` is the
    number of matching and free resources if the statement found that they are too few. ``free`` is
    None if the statement could not decide. ``is_allowed`` is false if a condition was not met that
    has nothing to do with free resources, such as a limit.
    """

    is_booked: bool
    is_allowed: bool = True
    free: int | None = None


def book(database: Database, plan: BookingPlan) -> Verdict:
    """Book resources and store the lease of ``plan``, in one statement that commits by itself.

    ``database`` must be PostgreSQL. Raises DBAPIError. The error of a lost race is transient (see
    ``database.is_transient``): nothing is stored then, and the caller should try again.
    """
    requirement = plan.requirement
    wanted = shape(requirement)
    query, texts = generalised(wanted.query)
    tables = tuple((table.__tablename__, tuple(rows[0])) for table, rows in plan.rows)
    statement, constants = _statement(
        replace(wanted, query=query),
        plan.limit if plan.among is None else None,
        tables,
        bool(plan.names),
        plan.open_leases is not None,
    )
    searched = {name: texts.get(value, value) for name, value in constants.items()}
    [(is_allowed, fits, found)] = database.run_at_once(statement, {**searched, **_values(plan)})
    if fits:
        return Verdict(is_booked=True)
    is_short = plan.among is None and is_allowed and found < requirement.minimum
    return Verdict(is_booked=False, is_allowed=is_allowed, free=found if is_short else None)


def _values(plan: BookingPlan) -> dict[str, Any]:
    open_leases = plan.open_leases
    return {
        "start": plan.busy.start,
        "end": plan.busy.end,
        **_searched(plan),
        "most": plan.requirement.maximum,
        "reservation": plan.reservation_id,
        **{f"rows_{n}": encode_json(rows) for n, (_, rows) in enumerate(plan.rows)},
        **({"names": list(plan.names), "private": plan.sees_private} if plan.names else {}),
        **(
            {
                "project": open_leases.project_id,
                "now": open_leases.now,
                "most_open": open_leases.most,
            }
            if open_leases
            else {}
        ),
    }


def _searched(plan: BookingPlan) -> dict[str, Any]:
    if plan.among is None:
        return {"rotation": plan.rotation, "least": plan.requirement.minimum}
    # If fewer than the maximum are free, there may be more among the other resources.
    return {"ids": array_text(plan.among), "least": plan.requirement.maximum}


Tables = tuple[tuple[str, tuple[str, ...]], ...]
# The parameters of the search that do not come from the requirement's query.
_GIVEN = ("start", "end", "rotation", "ids", "most")


@lru_cache(512)
def _statement(
    wanted: Shape,
    limit: int | None,
    tables: Tables,
    has_names: bool,  # noqa: FBT001 - a cache needs positional arguments
    is_limited: bool,  # noqa: FBT001
) -> tuple[DriverStatement, dict[str, Any]]:
    """Return the statement, and the values of the parameters that the query needs.

    The query of ``wanted`` is generalised, as it takes longer to build and compile the statement
    than to execute it.

    If ``limit`` is None, the statement tries only the resources in the parameter ``ids``.
    """
    query = (
        fitting.suggested_versions(wanted)
        if limit is None
        else fitting.available_versions(wanted, limit)
    ).compile(dialect=POSTGRESQL)
    # ``IN`` has a parameter for each of its values.
    search = query.construct_expanded_state(dict.fromkeys(_GIVEN))
    conditions = [_NAMES_ARE_KNOWN] * has_names + [_HAS_FEW_OPEN_LEASES] * is_limited or ["true"]
    inserts = "".join(_insert(n, *table) for n, table in enumerate(tables))
    text = _TEXT.format(search=search.statement, allowed=" AND ".join(conditions), inserts=inserts)
    constants = {name: value for name, value in search.parameters.items() if value is not None}
    return convert(text), {**constants, "type": wanted.resource_type}


def _insert(number: int, table: str, columns: Sequence[str]) -> str:
    names = ", ".join(f'"{column}"' for column in columns)
    return (
        f"part_{number} AS (INSERT INTO {table} ({names}) SELECT {names}"  # noqa: S608 - names of tables and columns
        f" FROM json_populate_recordset(NULL::{table}, %(rows_{number})s), decision WHERE fits),\n"
    )


# ``version`` (the id of the transaction that wrote the row) tells whether another transaction
# changed the resource after the search read it and before this statement locked it.
_TEXT = """
WITH candidates AS ({search}),
locked AS (
    SELECT resources.id, resources.xmin AS version FROM resources
    WHERE resources.id IN (SELECT id FROM candidates)
    LIMIT %(most)s::bigint FOR UPDATE SKIP LOCKED
),
chosen AS (
    SELECT locked.id FROM locked JOIN candidates
    ON candidates.id = locked.id AND candidates.version = locked.version
),
permission AS (SELECT {allowed} AS is_allowed),
counts AS (
    SELECT (SELECT count(*) FROM chosen) AS chosen, (SELECT count(*) FROM candidates) AS found
),
decision AS (
    SELECT is_allowed, found,
        is_allowed AND chosen >= %(least)s::bigint
        AND chosen = least(found, %(most)s::bigint) AS fits
    FROM permission, counts
),
{inserts}
booked AS (
    INSERT INTO allocations (resource_id, reservation_id, start_at, busy_until)
    SELECT id, %(reservation)s, %(start)s, %(end)s FROM chosen, decision WHERE fits
)
SELECT is_allowed, fits, found FROM decision
"""
# The rules of ``manager.admission.requirements.check_names``.
_NAMES_ARE_KNOWN = """NOT EXISTS (
    SELECT FROM unnest(%(names)s::text[]) AS named (name)
    LEFT JOIN properties ON properties.resource_type = %(type)s AND properties.name = named.name
    WHERE CASE
        WHEN properties.name IS NOT NULL THEN properties.private AND NOT %(private)s
        ELSE NOT EXISTS (
            SELECT FROM resource_properties AS given
            JOIN resources ON resources.id = given.resource_id AND resources.type = %(type)s
            WHERE given.name = named.name
        )
    END
)"""
# The rules of ``manager.admission.limits.limits.OpenLeasesGate``.
_HAS_FEW_OPEN_LEASES = """(
    NOT EXISTS (
        SELECT FROM limits
        WHERE scope = 'project' AND owner_id = %(project)s AND overrides::text <> '{}'
    ) AND %(most_open)s > (
        SELECT count(*) FROM leases
        WHERE project_id = %(project)s AND end_at > %(now)s
        AND status NOT IN ('TERMINATED', 'DELETING')
    ) + (
        SELECT count(*) FROM waits JOIN leases ON leases.id = waits.lease_id
        WHERE waits.project_id = %(project)s AND status = 'WAITING' AND end_at <= %(now)s
    )
)"""
