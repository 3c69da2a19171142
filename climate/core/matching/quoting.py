"""Checks whether databases can store a text from a client; quotes such texts in error messages.

A quotation of a long text contains only its beginning.
"""

import itertools
import json
import re

_ECHO = 200
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def is_storable(text: str) -> bool:
    """Return whether every database can store ``text``: it has no NUL and no lone surrogate."""
    return _UNSTORABLE.search(text) is None


def check_storable(value: object) -> None:
    """Raise ValueError if ``value`` (decoded JSON) has a text that a database cannot store."""
    rest = [value]
    while rest:
        value = rest.pop()
        if isinstance(value, str) and not is_storable(value):
            raise ValueError("a text contains a NUL or half a surrogate pair")
        rest += [*value, *value.values()] if isinstance(value, dict) else []
        rest += value if isinstance(value, list) else []


def quoted(source: object) -> str:
    """Return ``source`` for an error message: a text as it is, anything else as JSON.

    If this is longer than 200 characters, the result is only its beginning.
    """
    return cut(source) if isinstance(source, str) else show(source)


def show(value: object) -> str:
    """Return ``value`` as JSON, or only the beginning if the JSON is long."""
    # The value may be huge and deep: encode no more than is shown (no piece is empty).
    pieces = json.JSONEncoder(ensure_ascii=False, default=repr).iterencode(value)
    return cut("".join(itertools.islice(pieces, _ECHO + 1)))


def cut(text: str) -> str:
    """Return ``text``, or only its beginning if it is longer than 200 characters."""
    return text if len(text) <= _ECHO else f"{text[:_ECHO]}..."
