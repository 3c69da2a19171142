"""SQL expressions for times and for sums over time, in the SQL dialect of each database.

A window of time is divided into buckets: spans of equal length, numbered from 0. ``resolution`` is
the length of a bucket in seconds. A step is a change of a running total at a time; for example, a
booking adds its part of the resource at its start and subtracts the part at its end.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from climate.core.window import Window
from climate.db.engine.types import UtcDateTime

_DAWN = datetime(1970, 1, 1, tzinfo=UTC)
# Parameters of all statements on windows: seconds from 1970, and the seconds of a bucket.
ORIGIN: sa.BindParameter[int] = sa.bindparam("origin", type_=sa.BigInteger())
RESOLUTION: sa.BindParameter[int] = sa.bindparam("resolution", type_=sa.BigInteger())
# The same as times: the ends of the window, and the length of a bucket.
START = sa.bindparam("start", type_=UtcDateTime())
END = sa.bindparam("end", type_=UtcDateTime())
SPAN = sa.bindparam("span", type_=sa.Interval())
# With PostgreSQL's default of 4 MB for each sort and hash table, it sorts on disk. A plan for the
# given window is better than one for any window, and planning takes 2 ms. With its default costs of
# parallel workers, it reads a million bookings with one process.
_FOR_SUMS = sa.text(
    "SELECT set_config('work_mem', '64MB', true),"
    " set_config('plan_cache_mode', 'force_custom_plan', true),"
    " set_config('parallel_setup_cost', '0', true), set_config('parallel_tuple_cost', '0', true)"
)


class epoch(FunctionElement[int]):  # noqa: N801 - reads like a function of SQL
    """An SQL expression: the whole seconds from 1970 (UTC) to a time, rounded down."""

    type = sa.BigInteger()
    inherit_cache = True


@compiles(epoch, "postgresql")
def _epoch(element: epoch, compiler: SQLCompiler, **options: Any) -> str:
    # Not extract(), whose result is numeric: sums of that take three times as long.
    return f"floor(date_part('epoch', {compiler.process(element.clauses, **options)}))::bigint"


@compiles(epoch, "sqlite")
def _strftime(element: epoch, compiler: SQLCompiler, **options: Any) -> str:
    return f"CAST(strftime('%s', {compiler.process(element.clauses, **options)}) AS INTEGER)"


@compiles(epoch, "mysql")
@compiles(epoch, "mariadb")
def _timestampdiff(element: epoch, compiler: SQLCompiler, **options: Any) -> str:
    # Not unix_timestamp(), which ends in 2106.
    text = compiler.process(element.clauses, **options)
    return f"TIMESTAMPDIFF(SECOND, '1970-01-01', {text})"


class bucket(FunctionElement[Any]):  # noqa: N801 - reads like a function of SQL
    """An SQL expression: a value that identifies the bucket in which a time lies.

    The argument is the time, which must not be before the window. The value is the start of the
    bucket on PostgreSQL, and the number of the bucket on other databases. Pass the value to
    ``number`` to get the number on every database.
    """

    inherit_cache = True


@compiles(bucket)
def _divided(element: bucket, compiler: SQLCompiler, **options: Any) -> str:
    (moment,) = element.clauses
    return f"({compiler.process(offset(moment) // RESOLUTION, **options)})"


@compiles(bucket, "postgresql")
def _date_bin(element: bucket, compiler: SQLCompiler, **options: Any) -> str:
    # Not the number, which PostgreSQL would compute again for each use in an outer query.
    (moment,) = element.clauses
    return compiler.process(sa.func.date_bin(SPAN, moment, START), **options)


class number(FunctionElement[int]):  # noqa: N801 - reads like a function of SQL
    """An SQL expression: the number of a bucket, from 0.

    The argument is the value of a ``bucket`` expression.
    """

    type = sa.BigInteger()
    inherit_cache = True


@compiles(number)
def _same(element: number, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.clauses, **options)


@compiles(number, "postgresql")
def _number_of_start(element: number, compiler: SQLCompiler, **options: Any) -> str:
    (start,) = element.clauses
    return f"({compiler.process(offset(start) // RESOLUTION, **options)})"


class late(FunctionElement[float]):  # noqa: N801 - reads like a function of SQL
    """An SQL expression: the seconds from the start of a bucket to a time in this bucket.

    The argument is the time. It must not be before the window.
    """

    type = sa.Double()
    inherit_cache = True


@compiles(late)
def _modulo(element: late, compiler: SQLCompiler, **options: Any) -> str:
    (moment,) = element.clauses
    return f"({compiler.process(offset(moment) % RESOLUTION, **options)})"


@compiles(late, "postgresql")
def _since_start(element: late, compiler: SQLCompiler, **options: Any) -> str:
    (moment,) = element.clauses
    return f"date_part('epoch', {compiler.process(moment - bucket(moment), **options)})"


class seconds(FunctionElement[float]):  # noqa: N801 - reads like a function of SQL
    """An SQL expression: the length of an interval in seconds. It works only on PostgreSQL."""

    type = sa.Double()
    inherit_cache = True


@compiles(seconds, "postgresql")
def _epoch_of_interval(element: seconds, compiler: SQLCompiler, **options: Any) -> str:
    return f"date_part('epoch', {compiler.process(element.clauses, **options)})"


class floor(FunctionElement[int]):  # noqa: N801 - reads like a function of SQL
    """An SQL expression: a number (0 or more), rounded down to an integer."""

    type = sa.BigInteger()
    inherit_cache = True


@compiles(floor)
def _floor(element: floor, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(sa.cast(sa.func.floor(*element.clauses), sa.BigInteger), **options)


@compiles(floor, "sqlite")
def _truncated(element: floor, compiler: SQLCompiler, **options: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **options)} AS INTEGER)"


class _Extreme(FunctionElement[int]):
    """The greatest or least of at least two values of the same type: integers or times."""

    # Not a CASE expression, which would compute an argument twice.

    type = sa.BigInteger()
    function: str
    function_of_sqlite: str


class at_least(_Extreme):  # noqa: N801 - reads like a function of SQL
    """An SQL expression: the greatest of some integers, or the latest of some times."""

    inherit_cache = True
    function, function_of_sqlite = "greatest", "max"


class at_most(_Extreme):  # noqa: N801 - reads like a function of SQL
    """An SQL expression: the least of some integers, or the earliest of some times."""

    inherit_cache = True
    function, function_of_sqlite = "least", "min"


@compiles(_Extreme)
def _extreme(element: _Extreme, compiler: SQLCompiler, **options: Any) -> str:
    return f"{element.function}({compiler.process(element.clauses, **options)})"


@compiles(_Extreme, "sqlite")
def _extreme_of_sqlite(element: _Extreme, compiler: SQLCompiler, **options: Any) -> str:
    return f"{element.function_of_sqlite}({compiler.process(element.clauses, **options)})"


def signs() -> sa.FromClause:
    """Return an SQL table with the two rows 1 and -1, in the column ``sign``.

    A cross join of bookings with this table turns each booking into two steps: at the start, the
    booking adds its part of the resource; at the end, it subtracts the part. So the database reads
    the bookings only once.
    """
    plus: sa.ColumnElement[int] = sa.literal_column("1")
    minus: sa.ColumnElement[int] = sa.literal_column("-1")
    return sa.union_all(sa.select(plus.label("sign")), sa.select(minus)).subquery("signs")


def origin(window: Window) -> int:
    """Return the seconds from 1970 (UTC) to the start of a window."""
    return int((window.start - _DAWN).total_seconds())


def length(window: Window) -> int:
    """Return the length of a window in seconds."""
    return int((window.end - window.start).total_seconds())


def offset(moment: sa.ColumnElement[datetime]) -> sa.ColumnElement[int]:
    """Return an SQL expression: the seconds from the start of the window to a time.

    The SQL parameter ``origin`` has the start of the window, in seconds from 1970.
    """
    return epoch(moment) - ORIGIN


def values(window: Window, resolution: int) -> dict[str, Any]:
    """Return the SQL parameters of queries on a window and its buckets: the values by name.

    ``resolution`` is the length of a bucket in seconds.
    """
    return {
        "start": window.start,
        "end": window.end,
        "origin": origin(window),
        "resolution": resolution,
        "span": timedelta(seconds=resolution),
    }


def execute(session: Session, query: sa.Select[Any], more: Mapping[str, Any]) -> Sequence[Any]:
    """Execute a query that computes sums over many bookings, and return its rows.

    ``more`` contains the values of the SQL parameters by name. On PostgreSQL, first change two
    settings for the rest of the transaction: sort in memory, and plan each query for its
    parameters.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(_FOR_SUMS)
    return session.execute(query, more).all()


def bucketed(steps: sa.FromClause) -> sa.Select[Any]:
    """Build the query for a running total, one row per bucket in which the total changes.

    ``steps`` contains the changes: ``at`` is a time, and ``delta`` is added to the total at this
    time. The columns of the result are those of ``climate.core.matching.occupancy.Bucket``: the
    number of the bucket, the sum of the changes, the highest total, and the time of the first
    change in seconds from the start of the window.

    The query adds up changes at the same time before it computes the total. So a booking that ends
    and a booking that starts at the same time do not overlap. Changes before the window take effect
    at the start of the window; their ``delta`` must not be negative.
    """
    # Doubles, as sums of large integers are decimal numbers on PostgreSQL, which is slow.
    at, delta = steps.c.at, sa.func.sum(sa.cast(steps.c.delta, sa.Double)).label("delta")
    moments = sa.select(at, delta).group_by(at).subquery("moments")
    # ROWS, as each time is there once: by default, PostgreSQL compares each row with the next.
    level = sa.func.sum(moments.c.delta).over(order_by=moments.c.at, rows=(None, 0)).label("level")
    levels = sa.select(offset(moments.c.at).label("at"), moments.c.delta, level).subquery("levels")
    clipped = at_least(levels.c.at, sa.literal_column("0"))
    number = (clipped // RESOLUTION).label("number")
    sums: list[Any] = [sa.func.sum(levels.c.delta), sa.func.max(levels.c.level)]
    return sa.select(number, *sums, sa.func.min(clipped)).group_by(sa.literal_column("1"))
