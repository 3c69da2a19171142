"""Records of which there are very many: frozen for whoever checks the types.

At run time they are not: to make a frozen dataclass takes four times as long.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

__all__ = ["record"]

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(*, frozen: bool, **options: Any) -> Any:  # noqa: ANN401 - never looked at
        """Make a class a dataclass that has a hash if it is ``frozen``."""
        return dataclasses.dataclass(unsafe_hash=frozen, **options)
