"""Spans of time in requests: errors name the query parameter or the key of the end."""

from datetime import datetime

from climate.api.v2.http import validation
from climate.core.errors import InvalidDate
from climate.core.window import Window
from climate.manager.admission.availability import check_span


def in_query(start: datetime, end: datetime) -> Window:
    """Return the span between the query parameters ``start`` and ``end``.

    Raises InvalidDate, which names ``end``, if the span is empty or too long.
    """
    try:
        return _checked(start, end)
    except InvalidDate as error:
        raise validation.of_parameter(error, "end") from None


def in_body(start: datetime, end: datetime, key: str) -> Window:
    """Return the span from ``start`` to ``end``, the value of ``key`` in the body.

    Raises InvalidDate, which names ``key``, if the span is empty or too long.
    """
    try:
        return _checked(start, end)
    except InvalidDate as error:
        raise validation.placed(error, (key,)) from None


def _checked(start: datetime, end: datetime) -> Window:
    span = Window(start, end)
    check_span(span)
    return span
