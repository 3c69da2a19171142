"""Properties in the bodies of requests: their texts, as climate stores them."""

from collections.abc import Mapping
from typing import Any

from climate.api.v1.schemas import capabilities
from climate.api.v2.http import validation
from climate.api.v2.http.validation import Place
from climate.core.errors import InvalidInput
from climate.core.matching.property_type import ALLOWED_PROJECTS, Kind, Types, canonical
from climate.core.matching.query import ITEM_SEPARATOR


def texts(types: Types, given: Mapping[str, Any], at: Place) -> dict[str, str | None]:
    """Return the properties in a request as texts; null (None) removes a property.

    Properties that ``types`` declare as sets can be lists of texts. ``at`` is the place of the
    properties in the body, which errors name. Raises InvalidInput.
    """
    try:
        joined = {name: _joined(types, name, value) for name, value in given.items()}
        removed: dict[str, str | None] = {n: None for n, value in joined.items() if value is None}
        kept = capabilities({n: value for n, value in joined.items() if value is not None})
        # The use cases do this, too. Here, the error gets its place.
        return {**canonical(types, kept), **removed}
    except InvalidInput as error:
        raise validation.placed(error, at) from None


def _joined(types: Types, name: str, value: object) -> object:
    """Return the text of a set that is given as a list. Return any other value as it is."""
    is_set = name == ALLOWED_PROJECTS or (name in types and types[name].kind is Kind.SET)
    if not isinstance(value, list) or not is_set:
        return value
    if not all(isinstance(item, str) and item and ITEM_SEPARATOR not in item for item in value):
        raise InvalidInput(f"{name}: the items of a set are texts without commas, and not empty")
    return ITEM_SEPARATOR.join(value)
