"""``record``: a dataclass decorator for objects that climate creates in large numbers.

Type checkers treat these dataclasses as frozen. At run time they are not, because creating a frozen
dataclass takes four times as long.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

__all__ = ["record"]

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(*, frozen: bool, **options: Any) -> Any:  # noqa: ANN401 - type checkers do not see it
        """Return a decorator that makes a class a dataclass, with a hash if ``frozen`` is true.

        The ``options`` are those of ``dataclass``.
        """
        return dataclasses.dataclass(unsafe_hash=frozen, **options)
