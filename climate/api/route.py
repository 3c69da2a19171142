"""A row of the route tables of v1 and v2. The OpenAPI document of v2 uses the same rows."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from marshmallow import Schema

from climate.api.call import Answer
from climate.core.errors import (
    BackendUnavailable,
    ClimateError,
    Contention,
    ContentTooLarge,
    Forbidden,
    IdentityUnavailable,
    InvalidInput,
    NotFound,
    Unauthenticated,
    UnsupportedMediaType,
)

_CALLER = (Unauthenticated, Forbidden, IdentityUnavailable, BackendUnavailable)
_BODY = (InvalidInput, ContentTooLarge, UnsupportedMediaType)


# The body of an answer: a schema, one of several schemas (a tuple), a JSON list of objects of one
# schema (a list), or a media type.
Body = type[Schema] | tuple[type[Schema], ...] | list[type[Schema]] | str


class Route(NamedTuple):
    """A method on a path, the view that answers it, and the policy rule that it requires.

    A route without a rule needs no token, and its view receives the ``Api`` instead of a ``Call``.
    The other fields describe a route of v2: schemas, headers, and answers by status (None: an
    empty body).
    """

    method: str
    path: str
    view: Callable[..., Answer]
    rule: str | None = None
    query: type[Schema] | None = None
    body: type[Schema] | None = None
    request_headers: tuple[str, ...] = ()
    response_headers: tuple[str, ...] = ()
    answers: Mapping[int, Body | None] = {}
    own_errors: tuple[type[ClimateError], ...] = ()

    @property
    def template(self) -> str:
        """The path with its parameters in braces."""
        return re.sub(r"<(\w+)>", r"{\1}", self.path)

    @property
    def summary(self) -> str:
        """The first line of the view's docstring."""
        return (inspect.getdoc(self.view) or "").partition("\n")[0].rstrip(".")

    @property
    def errors(self) -> tuple[type[ClimateError], ...]:
        """The errors that this route may answer, for the OpenAPI document.

        First those that follow from the row (token, body, query, path, write), then ``own_errors``.
        """
        is_write = self.rule is not None and not self.rule.endswith(":get")
        return (
            *(_CALLER if self.rule else ()),
            *(_BODY if self.body else ()),
            *((InvalidInput,) if self.query else ()),
            *((NotFound,) if "<" in self.path else ()),
            *((Contention,) if is_write else ()),
            *self.own_errors,
        )
