"""Quoting what was sent in a refusal: enough to recognise it, however long and deep it is."""

import itertools
import json

_ECHO = 200


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
