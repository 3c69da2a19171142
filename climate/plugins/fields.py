"""Request fields and parameter values that several resource types share."""

import json
from typing import Any

from marshmallow import fields

from climate.core.errors import InvalidQuery
from climate.core.matching.extra_specs import read

#: Values of ``on_start`` and ``on_end``.
CREATE, NOTHING = "create", "nothing"
DELETE, KEEP = "delete", "keep"


class WholeNumber(fields.Integer):
    """An integer, as a number or as text: command lines send ``"1"``. Rejects ``1.5``."""

    def _validated(self, value: Any) -> int:  # noqa: ANN401 - marshmallow's signature
        if isinstance(value, bool | float):
            raise self.make_error("invalid", input=value)
        if isinstance(value, str) and not value.strip().isdecimal():
            raise self.make_error("invalid", input=value)
        return super()._validated(value)


class Expression(fields.Field[str]):
    """A property expression or extra specs, as text or JSON; stored as text."""

    def _deserialize(self, value: Any, *_args: Any, **_kwargs: Any) -> str:  # noqa: ANN401
        try:
            read(value)
        except InvalidQuery as error:
            raise InvalidQuery(f"{error.message} (in {self.name})") from None
        if value is None:
            return ""
        return value if isinstance(value, str) else json.dumps(value)
