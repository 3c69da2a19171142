"""``column IN (...)`` for lists of any length.

On PostgreSQL that is ``column = ANY(array)``: one parameter, so one statement however many there
are, which is parsed and planned once. Elsewhere there is a parameter for each.
"""

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class among(FunctionElement[Any]):  # noqa: N801 - reads like a function of SQLAlchemy's
    """That a column has one of these values, given now or as a parameter when it is executed."""

    # A truth value it had better not be: databases that have none would compare it with 1, and that
    # is a condition for which they use no index.
    type = sa.types.NULLTYPE
    inherit_cache = True

    def __init__(self, column: Any, values: Collection[Any] | str) -> None:  # noqa: ANN401
        """Take the values, or the name of the parameter that they will be."""
        if isinstance(values, str):
            wanted = sa.bindparam(values, type_=column.type, expanding=True)
        else:
            known = list(values)
            wanted = sa.bindparam(None, known, type_=column.type, expanding=True, unique=True)
        super().__init__(column, wanted)


@compiles(among)
def _in(element: among, compiler: SQLCompiler, **options: Any) -> str:
    column, values = element.clauses
    return compiler.process(column.in_(values), **options)


@compiles(among, "postgresql")
def _any(element: among, compiler: SQLCompiler, **options: Any) -> str:
    column, values = element.clauses
    # To text of a length, PostgreSQL would cut what it compares.
    one = sa.String() if isinstance(column.type, sa.String) else column.type
    # The same parameter, by its key, of another type.
    array = sa.bindparam(values.key, values.value, type_=sa.ARRAY(one), required=values.required)
    return compiler.process(column == sa.any_(array), **options)
