"""A request with its caller: what a view needs to answer it."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol, TypeVar

from flask import request
from oslo_config.cfg import ConfigOpts

from climate.api.auth import Caller, Identify
from climate.api.policy import Policy
from climate.core.errors import Forbidden, InvalidInput, NotFound
from climate.core.matching.quoting import is_storable
from climate.manager.events.dispatcher import Dispatcher
from climate.manager.leases.create import Owner
from climate.manager.process.heartbeat import WriteTrials
from climate.manager.process.runtime import Runtime

# A body (None: empty, str: HTML, bytes: of the type in the headers, an iterator: an event stream,
# else JSON), a status, and headers.
Answer = tuple[Any, int] | tuple[Any, int, Mapping[str, str]]

# The key in the WSGI environment of the time (UTC) at which the request arrived.
ARRIVED_AT = "climate.asked_at"
_MAX_DEPTH = 64


class _OfProject(Protocol):
    @property
    def project_id(self) -> str: ...


T = TypeVar("T", bound=_OfProject)


@dataclass(frozen=True, slots=True)
class Api:
    """The objects that all requests share: configuration, runtime, policy and so on.

    ``runtime`` contains the database, the plug-ins and the clock. ``identify`` returns the caller
    of a request. ``dispatcher`` is the part of a manager that polls for due events; it is None if
    no manager runs in this process. ``write_trials`` finds out whether the database accepts writes.
    """

    conf: ConfigOpts
    runtime: Runtime
    identify: Identify
    policy: Policy
    dispatcher: Dispatcher | None
    write_trials: WriteTrials


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose caller is identified; ``asked_at`` (UTC) is when the request arrived."""

    api: Api
    caller: Caller
    asked_at: datetime

    @property
    def runtime(self) -> Runtime:
        """The objects that ``climate.manager`` needs, such as the database, plug-ins and clock."""
        return self.api.runtime

    @property
    def owner(self) -> Owner:
        """The caller as the owner of new leases.

        In the result, ``sees_private`` states whether the policy ``resources:get_private`` allows
        the caller to see private properties of resources.
        """
        return replace(self.caller, sees_private=self.may("resources:get_private"))

    def require(self, rule: str, project_id: str | None = None) -> None:
        """Raise Forbidden if the policy ``rule`` does not allow the caller's action in a project.

        ``project_id`` is the project that owns the objects on which the caller acts. It defaults
        to the caller's own project.
        """
        if self.may(rule, project_id):
            return
        if request.path.startswith("/v1"):
            raise Forbidden(f"Policy doesn't allow {rule} to be performed.")  # as in Blazar
        raise Forbidden(self.api.policy.explanation(rule))

    def may(self, rule: str, project_id: str | None = None) -> bool:
        """Return whether the policy ``rule`` allows the caller's action in a project.

        ``project_id`` is the project that owns the objects on which the caller acts. It defaults
        to the caller's own project.
        """
        return self.api.policy.allows(self.caller, rule, project_id or self.caller.project_id)

    def visible(self, get: Callable[[Runtime, str], T], id_: str, rule: str, absent: str) -> T:
        """Return the object, such as a lease, that ``get`` reads for the id ``id_``.

        Raises NotFound with the message ``absent`` if there is no such object, or if the policy
        ``rule`` forbids the caller to read it.
        """
        try:
            item = get(self.runtime, id_)
        except NotFound:
            raise NotFound(absent) from None
        if not self.may(rule, item.project_id):
            raise NotFound(absent)
        return item

    def body(self, *, unique_keys: bool = False) -> dict[str, Any]:
        """Return the JSON object in the request body; raise InvalidInput if there is none.

        If a key occurs twice in an object, use its last value. With ``unique_keys``, raise
        InvalidInput instead.
        """
        return json_object(unique_keys=unique_keys)


def json_object(*, unique_keys: bool) -> dict[str, Any]:
    """Return the JSON object in the body of the current request, as ``Call.body`` does.

    Use this function for routes without an identified caller. Raises InvalidInput if the body is
    not a JSON object, or contains values that no database can store.
    """
    pairs = _unique if unique_keys else None
    try:
        body = json.loads(request.get_data(), parse_constant=_no_constant, object_pairs_hook=pairs)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"The request body is not valid JSON: {error}") from None
    if not isinstance(body, dict):
        raise InvalidInput("The request body must be a JSON object")
    _check_storable(body, 0)
    return body


def _check_storable(value: Any, depth: int) -> None:  # noqa: ANN401 - JSON
    """Raise InvalidInput if the JSON ``value`` contains text or numbers that no database can store.

    Also raise InvalidInput if objects and lists are nested more than 64 deep. ``depth`` is the
    number of objects and lists around ``value``.
    """
    if depth > _MAX_DEPTH:
        raise InvalidInput(f"The request body is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, str) and not is_storable(value):
        raise InvalidInput("The request body contains a NUL or half a surrogate pair")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput("The request body contains a number that is out of range")
    inner = [*value, *value.values()] if isinstance(value, dict) else value
    if isinstance(inner, list):
        for item in inner:
            _check_storable(item, depth + 1)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = set[str]()
    for key, _ in pairs:
        if key in keys:
            raise InvalidInput(f"The request body has the key {key[:100]!r} twice in one object")
        keys.add(key)
    return dict(pairs)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
