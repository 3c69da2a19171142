"""Doing several things of which some may fail, so that one strands no other."""

from collections.abc import Callable

from climate.plugins.base import NotYet


def take_all(*steps: Callable[[], None]) -> None:
    """Take every step, whichever fail; then say which did.

    Raises the first failure that is none of time, or else NotYet.
    """
    failures: list[Exception] = []
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - told below, after the others had their turn
            failures.append(error)
    failures.sort(key=lambda error: isinstance(error, NotYet))
    if failures:
        raise failures[0]
