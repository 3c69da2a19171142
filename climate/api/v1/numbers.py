"""Ids of hosts and addresses in v1: numbers, as text."""

from climate.core.errors import NotFound


def number(noun: str, text: str) -> int:
    """Return the number that an id is; whatever else is no id of any ``noun``."""
    if text.isascii() and text.isdecimal() and len(text) < len(str(2**63)):
        return int(text)
    raise NotFound(f"Object with {{'{noun}_id': '{text}'}} not found")
