"""``column IN (...)`` for lists of any length.

On PostgreSQL that is ``column = ANY(array)``, on SQLite a list in JSON: one parameter, so one
statement however many there are, which is put together, parsed and planned once. Elsewhere there is
a parameter for each.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

T = TypeVar("T")


class among(FunctionElement[Any]):  # noqa: N801 - reads like a function of SQLAlchemy's
    """That a column has one of these values, given now or as a parameter when it is executed."""

    # A truth value it had better not be: databases that have none would compare it with 1, and that
    # is a condition for which they use no index.
    type = sa.types.NULLTYPE
    inherit_cache = True

    def __init__(self, column: Any, values: Collection[Any] | str) -> None:  # noqa: ANN401
        """Take the values, or the name of the parameter, a list, that they will be.

        They are texts or integers, and there is no NUL in them.
        """
        if isinstance(values, str):
            wanted = sa.bindparam(values, type_=column.type, expanding=True)
        else:
            known = list(values)
            wanted = sa.bindparam(None, known, type_=column.type, expanding=True, unique=True)
        super().__init__(column, wanted)


def chunks(values: Sequence[T], size: int = 10_000) -> Iterable[Sequence[T]]:
    """Stay below what a statement may be long on MariaDB, which has each value in its text."""
    return (values[at : at + size] for at in range(0, len(values), size))


class _Array(sa.types.TypeDecorator[Collection[Any]]):
    """An array that is given as PostgreSQL writes it: the driver would look at each value for long.

    It is one parameter, and no text that is cast: that would be parsed again for each row.
    """

    impl = sa.ARRAY
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], str]:  # noqa: ARG002
        """Return what says ``{"one","another"}``."""
        return _written


def _written(values: Collection[Any]) -> str:
    quoted = [str(one).replace("\\", "\\\\").replace('"', '\\"') for one in values]
    joined = '","'.join(quoted)
    return f'{{"{joined}"}}' if quoted else "{}"


@compiles(among)
def _in(element: among, compiler: SQLCompiler, **options: Any) -> str:
    column, values = element.clauses
    return compiler.process(column.in_(values), **options)


@compiles(among, "sqlite")
def _in_json(element: among, compiler: SQLCompiler, **options: Any) -> str:
    column, values = element.clauses
    given = compiler.process(_another(values, sa.JSON()), **options)
    tested = compiler.process(column, **options)
    return f"{tested} IN (SELECT value FROM json_each({given}))"  # noqa: S608 - a parameter's name


@compiles(among, "postgresql")
def _any(element: among, compiler: SQLCompiler, **options: Any) -> str:
    column, values = element.clauses
    # To text of a length, PostgreSQL would cut what it compares.
    one = sa.String() if isinstance(column.type, sa.String) else column.type
    array = _another(values, _Array(one))
    return compiler.process(column == sa.any_(array), **options)


def _another(values: Any, type_: sa.types.TypeEngine[Any]) -> sa.BindParameter[Any]:  # noqa: ANN401
    """Return the same parameter, by its key, of another type."""
    return sa.bindparam(values.key, values.value, type_=type_, required=values.required)
