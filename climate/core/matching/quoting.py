"""What was sent: whether it can be kept, and quoting it in a refusal.

A quotation is enough to recognise it, however long and deep it is.
"""

import itertools
import json

_ECHO = 200


def is_storable(text: str) -> bool:
    """Tell whether every database can keep ``text``: no NUL, no lone surrogate."""
    return "\x00" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


def check_storable(value: object) -> None:
    """Raise ValueError for decoded JSON with a text, wherever it is, that cannot be kept."""
    rest = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, str) and not is_storable(one):
            raise ValueError("a text contains a NUL or half a surrogate pair")
        rest += [*one, *one.values()] if isinstance(one, dict) else []
        rest += one if isinstance(one, list) else []


def quoted(source: object) -> str:
    """Return what was sent, as JSON text or decoded, as JSON, cut."""
    return cut(source) if isinstance(source, str) else show(source)


def show(value: object) -> str:
    """Return ``value`` as JSON, cut."""
    # It may be huge and deep: no more is encoded than can be shown (no piece is empty).
    pieces = json.JSONEncoder(ensure_ascii=False, default=repr).iterencode(value)
    return cut("".join(itertools.islice(pieces, _ECHO + 1)))


def cut(text: str) -> str:
    """Return ``text``, or the beginning of it."""
    return text if len(text) <= _ECHO else f"{text[:_ECHO]}..."
