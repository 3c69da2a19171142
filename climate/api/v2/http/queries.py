"""Parameters of query strings that several lists share."""

from typing import Any

from marshmallow import fields, validate

from climate.api.v2.http.fields import Count, Strict
from climate.api.v2.http.schemas import described


def sorted_by(names: Any, default: str) -> fields.String:  # noqa: ANN401 - any names
    """Return the field for the order of a list: a name, or ``-`` and a name for descending."""
    orders = [prefix + name for name in names for prefix in ("", "-")]
    return fields.String(load_default=default, validate=validate.OneOf(orders))


def wait_seconds() -> Count:
    """Return the field for the time of long polling."""
    text = described("Seconds to wait for the first item if there is none (long polling).")
    bounds = {"minimum": 0, "maximum": 60}
    return Count(minimum=0, maximum=60, load_default=0, metadata={**text, **bounds})


class PageQuery(Strict):
    """The requested page of a list."""

    limit = Count(minimum=1, maximum=1000, load_default=100)
    marker = fields.String(
        metadata=described("Opaque position in the list: take it from the link to the next page.")
    )
