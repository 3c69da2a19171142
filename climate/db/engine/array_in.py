"""``column IN (...)`` for lists of any length.

PostgreSQL runs ``column = ANY(array)``, SQLite reads a JSON list. Both bind the list as one
parameter, so the statement is compiled, parsed and planned once for lists of any length. On
MariaDB each value is part of the statement: split long lists with ``chunks``.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

T = TypeVar("T")


class any_of(FunctionElement[Any]):  # noqa: N801 - reads like a function of SQLAlchemy's
    """The condition that a column has any of the given values."""

    # Not typed Boolean: MariaDB would render `= 1` and skip the index.
    type = sa.types.NULLTYPE
    inherit_cache = True

    def __init__(self, column: Any, values: Collection[Any] | str) -> None:  # noqa: ANN401
        """Take the values, or the name of a parameter that is a list of values.

        Values are texts without NUL, or integers.
        """
        if isinstance(values, str):
            parameter = sa.bindparam(values, type_=column.type, expanding=True)
        else:
            listed = list(values)
            parameter = sa.bindparam(None, listed, type_=column.type, expanding=True, unique=True)
        super().__init__(column, parameter)


def chunks(values: Sequence[T], size: int = 10_000) -> Iterable[Sequence[T]]:
    """Split values into slices, as MariaDB limits the length of a statement."""
    return (values[at : at + size] for at in range(0, len(values), size))


class _Array(sa.types.TypeDecorator[Collection[Any]]):
    """An array that is sent as a PostgreSQL array literal; psycopg's adaption of lists is slow.

    It is a parameter of type array. A text with a cast would be parsed again for each row.
    """

    impl = sa.ARRAY
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], str]:  # noqa: ARG002
        """Return the function that writes ``{"first","second"}``."""
        return _written


def _written(values: Collection[Any]) -> str:
    quoted = [str(value).replace("\\", "\\\\").replace('"', '\\"') for value in values]
    joined = '","'.join(quoted)
    return f'{{"{joined}"}}' if quoted else "{}"


@compiles(any_of)
def _in(element: any_of, compiler: SQLCompiler, **options: Any) -> str:
    column, values = element.clauses
    return compiler.process(column.in_(values), **options)


@compiles(any_of, "sqlite")
def _in_json(element: any_of, compiler: SQLCompiler, **options: Any) -> str:
    column, values = element.clauses
    listed = compiler.process(_retyped(values, sa.JSON()), **options)
    compared = compiler.process(column, **options)
    return f"{compared} IN (SELECT value FROM json_each({listed}))"  # noqa: S608 - a parameter's name


@compiles(any_of, "postgresql")
def _any(element: any_of, compiler: SQLCompiler, **options: Any) -> str:
    column, values = element.clauses
    # PostgreSQL truncates values that it casts to text of a fixed length.
    item = sa.String() if isinstance(column.type, sa.String) else column.type
    array = _retyped(values, _Array(item))
    return compiler.process(column == sa.any_(array), **options)


def _retyped(values: Any, type_: sa.types.TypeEngine[Any]) -> sa.BindParameter[Any]:  # noqa: ANN401
    """Return the parameter with the same key and another type."""
    return sa.bindparam(values.key, values.value, type_=type_, required=values.required)
