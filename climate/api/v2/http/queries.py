"""Parameters of query strings that several lists share."""

from typing import Any

from marshmallow import fields, validate

from climate.api.v2.http.fields import Count, Strict
from climate.api.v2.http.schemas import says


def sorted_by(names: Any, default: str) -> fields.String:  # noqa: ANN401 - any names
    """Return the field that says what a list is sorted by, with ``-`` the other way round."""
    both = [way + name for name in names for way in ("", "-")]
    return fields.String(load_default=default, validate=validate.OneOf(both))


def wait_seconds() -> Count:
    """Return the field that says how long to wait if there is nothing yet."""
    text = says("Seconds to wait for the first.")
    bounds = {"minimum": 0, "maximum": 60}
    return Count(minimum=0, maximum=60, load_default=0, metadata={**text, **bounds})


class PageQuery(Strict):
    """Which part of a list."""

    limit = Count(minimum=1, maximum=1000, load_default=100)
    marker = fields.String(metadata=says("Where to go on, from the link to the next page."))
