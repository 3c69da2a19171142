"""Pages of lists: a marker is the key of the last item seen, opaque to those who send it back."""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from flask import request

from climate.core.errors import InvalidInput
from climate.core.matching.quoting import is_storable
from climate.core.page import Page

_LARGEST = 2**63 - 1


def page(asked: Mapping[str, Any]) -> Page:
    """Return which page is asked for; raises InvalidInput for a marker that is none of ours."""
    sort: str = asked["sort"]
    return Page(
        sort=sort.removeprefix("-"),
        descending=sort.startswith("-"),
        limit=asked["limit"],
        after=_key(asked["marker"], sort) if "marker" in asked else None,
    )


def link(page: Page, value: Any, id_: str | int) -> str:  # noqa: ANN401 - what it is sorted by
    """Return where the items beyond the key (value, id) are: the same question with a marker."""
    sort = f"-{page.sort}" if page.descending else page.sort
    plain = value.isoformat() if isinstance(value, datetime) else value
    packed = json.dumps([sort, plain, id_], separators=(",", ":")).encode()
    marker = base64.urlsafe_b64encode(packed).rstrip(b"=").decode()
    asked = [(name, value) for name, value in request.args.items(multi=True) if name != "marker"]
    return f"{request.root_path}{request.path}?{urlencode([*asked, ('marker', marker)])}"


def _key(marker: str, sort: str) -> tuple[Any, Any]:
    try:
        packed = base64.b64decode(marker + "=" * (-len(marker) % 4), b"-_", validate=True)
        made_for, plain, id_ = json.loads(packed)
        value = _value(plain, sort.removeprefix("-"))
        is_sound = made_for == sort and (
            _is_id(id_) if isinstance(value, int) else isinstance(id_, str) and is_storable(id_)
        )
    except (ValueError, TypeError, OverflowError, RecursionError):
        is_sound = False
    if not is_sound:
        text = "This marker was not given for a list in this order: start from the first page."
        raise InvalidInput(f"marker: {text}", {"errors": [{"parameter": "marker", "detail": text}]})
    return value, id_


def _value(plain: Any, sort: str) -> Any:  # noqa: ANN401 - what it is sorted by
    """Return what stands in a marker as the database compares it; raises ValueError, TypeError."""
    if sort == "name" and isinstance(plain, str) and is_storable(plain):
        return plain
    if sort == "id" and _is_id(plain):
        return plain
    return datetime.fromisoformat(plain).astimezone(UTC)


def _is_id(plain: object) -> bool:
    return isinstance(plain, int) and not isinstance(plain, bool) and 0 <= plain <= _LARGEST
