"""The reference of error codes: one row for each error class."""

import inspect
from collections.abc import Iterator
from http import HTTPStatus

from climate.api import app as _app  # noqa: F401 - imports the modules that define errors
from climate.core.errors import ClimateError
from docs.extension.markdown import code, table


def markdown() -> str:
    """Return a table of all codes, in the order of their status."""
    rows = sorted((error.status, name, _meaning(error)) for name, error in by_code().items())
    return table(
        ["Code", "Status", "Meaning"],
        (
            [code(name), f"{status} {HTTPStatus(status).phrase}", meaning]
            for status, name, meaning in rows
        ),
    )


def by_code() -> dict[str, type[ClimateError]]:
    """Return the error class of each code: the first one, as its subclasses share the code."""
    classes: dict[str, type[ClimateError]] = {}
    for error in (ClimateError, *_classes()):
        classes.setdefault(error.code, error)
    return classes


def _classes(base: type[ClimateError] = ClimateError) -> Iterator[type[ClimateError]]:
    for error in base.__subclasses__():
        if error.__module__.startswith("climate."):
            yield error
            yield from _classes(error)


def _meaning(error: type[ClimateError]) -> str:
    if error is ClimateError:
        return "A defect in climate. The log has the details."
    return (inspect.getdoc(error) or "").replace("``", "`")
