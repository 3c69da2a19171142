"""Pages of lists. A marker is an opaque text that says after which item the next page starts.

It encodes the order of the list, and the sort key and id of the last item on a page. The client
sends the marker to get the next page.
"""

import base64
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar
from urllib.parse import urlencode

from flask import request

from climate.core.errors import InvalidInput
from climate.core.matching.quoting import is_storable
from climate.core.page import Page, Part

_MAX_ID = 2**63 - 1


class _Item(Protocol):
    @property
    def id(self) -> str | int: ...


T = TypeVar("T", bound=_Item)


def page(query: Mapping[str, Any], *, numbered: bool = False) -> Page:
    """Return the page that a query requests: order, size, and the item after which it starts.

    Set ``numbered`` if the ids of the items are numbers, not texts. Raises InvalidInput if the
    marker in the query is malformed, or belongs to a list in another order.
    """
    sort: str = query["sort"]
    return Page(
        sort=sort.removeprefix("-"),
        descending=sort.startswith("-"),
        limit=query["limit"],
        after=_key(query["marker"], sort, numbered=numbered) if "marker" in query else None,
    )


def following(page: Page, part: Part[T], sorts: Mapping[str, Callable[[T], Any]]) -> str | None:
    """Return the link to the next page, or None if there is none.

    The link is the URL of the current request with another marker. ``page`` is the page that the
    current request wants, and ``part`` contains its items. ``sorts`` maps the name of an order,
    such as ``start``, to a function that returns the sort key of an item.
    """
    if not part.more:
        return None
    last = part.items[-1]
    value = sorts[page.sort](last)
    sort = f"-{page.sort}" if page.descending else page.sort
    plain = value.isoformat() if isinstance(value, datetime) else value
    packed = json.dumps([sort, plain, last.id], separators=(",", ":")).encode()
    marker = base64.urlsafe_b64encode(packed).rstrip(b"=").decode()
    query = [(name, value) for name, value in request.args.items(multi=True) if name != "marker"]
    return f"{request.root_path}{request.path}?{urlencode([*query, ('marker', marker)])}"


def _key(marker: str, sort: str, *, numbered: bool) -> tuple[Any, Any]:
    try:
        packed = base64.b64decode(marker + "=" * (-len(marker) % 4), b"-_", validate=True)
        marker_sort, plain, id_ = json.loads(packed)
        value = _value(plain, sort.removeprefix("-"))
        is_valid = marker_sort == sort and (
            _is_id(id_) if numbered else isinstance(id_, str) and is_storable(id_)
        )
    except (ValueError, TypeError, OverflowError, RecursionError):
        is_valid = False
    if not is_valid:
        text = "This marker does not belong to a list in this order: start from the first page."
        raise InvalidInput(f"marker: {text}", {"errors": [{"parameter": "marker", "detail": text}]})
    return value, id_


def _value(plain: Any, sort: str) -> Any:  # noqa: ANN401 - a sort key
    """Return ``plain``, the JSON value of a sort key in a marker, as text, number or time.

    ``sort`` is the order of the list, such as ``name``, and determines the type of the result.
    Raises ValueError or TypeError if ``plain`` is malformed.
    """
    if sort == "name" and isinstance(plain, str) and is_storable(plain):
        return plain
    if sort == "id" and _is_id(plain):
        return plain
    return datetime.fromisoformat(plain).astimezone(UTC)


def _is_id(plain: object) -> bool:
    return isinstance(plain, int) and not isinstance(plain, bool) and 0 <= plain <= _MAX_ID
