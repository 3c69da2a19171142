"""Parsers of options with several values, separated by commas."""

import argparse
from collections.abc import Callable, Collection


def numbers(text: str) -> list[int]:
    """Parse whole numbers."""
    return [int(part) for part in text.split(",")]


def names(text: str) -> list[str]:
    """Parse any names."""
    return text.split(",")


def some_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """Return a parser of names, which rejects a name that is not ``known``."""

    def parse(text: str) -> list[str]:
        found = names(text)
        if unknown := set(found) - set(known):
            raise argparse.ArgumentTypeError(f"no such case: {', '.join(sorted(unknown))}")
        return found

    return parse
