"""Values as texts in JSON, for columns and parameters of every database.

A library that is several times as quick as Python's own; what it does not know is left to that.
"""

import json
from datetime import datetime
from typing import Any

import msgspec

_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder().decode


def written(value: Any) -> str:  # noqa: ANN401 - whatever JSON can say
    """Return the text of a value; raises TypeError for what has none."""
    try:
        return _ENCODE(value).decode()
    except (TypeError, ValueError):  # subclasses of str and numbers, half a surrogate pair
        return json.dumps(value, default=_plain)


def read(text: str | bytes) -> Any:  # noqa: ANN401 - whatever it is
    """Return what a text says."""
    try:
        return _DECODE(text)
    except msgspec.DecodeError:  # what only Python writes: NaN, 1e400, half a surrogate pair
        return json.loads(text)


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"not to be stored: {value!r}")
