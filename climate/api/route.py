"""``Route``: one row of a route table, such as the table of v1 or of v2.

climate registers its routes from these rows, and generates the OpenAPI document of v2 from them.
"""

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
    """A row of a route table: method, path, the view that answers, and the required policy rule.

    If the rule is None, the route needs no token, and the view gets an ``Api`` instead of a
    ``Call``. The other fields are for the OpenAPI document of v2: schemas of query and body, names
    of headers, answers and errors. ``answers`` maps each status to the type of the answer's body
    (None: an empty body).
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
        """The path with its parameters in braces, such as ``/v2/leases/{lease_id}``."""
        return re.sub(r"<(\w+)>", r"{\1}", self.path)

    @property
    def summary(self) -> str:
        """The first line of the view's docstring, which is the summary in the OpenAPI document."""
        return (inspect.getdoc(self.view) or "").partition("\n")[0].rstrip(".")

    @property
    def errors(self) -> tuple[type[ClimateError], ...]:
        """The classes of the errors with which the route can answer, for the OpenAPI document.

        First come the errors that follow from the other fields: for example, a route with a
        parameter in its path can answer NotFound. The errors in ``own_errors`` come last.
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
