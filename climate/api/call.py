"""One request on its way: who calls, what was sent, and what the views need to answer it."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from flask import request
from oslo_config.cfg import ConfigOpts

from climate.api.auth import Caller, Identify
from climate.api.policy import Policy
from climate.core.errors import InvalidInput
from climate.core.quoting import is_storable
from climate.manager.dispatcher import Dispatcher
from climate.manager.leases.create import Owner
from climate.manager.runtime import Runtime

# A body (None: none, text: a page, an iterator: a stream of events), a status, and headers if
# there is something to say in them.
Answer = tuple[Any, int] | tuple[Any, int, Mapping[str, str]]

_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class Api:
    """What all requests share."""

    conf: ConfigOpts
    runtime: Runtime
    identify: Identify
    policy: Policy
    dispatcher: Dispatcher | None


@dataclass(frozen=True, slots=True)
class Call:
    """An identified request, and when it came (UTC): to look things up for it may take a while."""

    api: Api
    caller: Caller
    asked_at: datetime

    @property
    def runtime(self) -> Runtime:
        """Return what use cases need."""
        return self.api.runtime

    @property
    def owner(self) -> Owner:
        """Return who asks, as use cases need to know."""
        caller = self.caller
        return Owner(
            user_id=caller.user_id,
            project_id=caller.project_id,
            roles=caller.roles,
            token=caller.token,
        )

    def require(self, rule: str, project_id: str | None = None) -> None:
        """Raise Forbidden unless the caller may, to its own project's things by default."""
        self.api.policy.require(self.caller, rule, project_id or self.caller.project_id)

    def may(self, rule: str, project_id: str | None = None) -> bool:
        """Tell whether the caller may."""
        return self.api.policy.allows(self.caller, rule, project_id or self.caller.project_id)

    def query(self, name: str) -> str | None:
        """Return a parameter of the query string."""
        return request.args.get(name)

    def body(self) -> dict[str, Any]:
        """Return the JSON object that was sent; raises InvalidInput for anything else."""
        try:
            found = json.loads(request.get_data(), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"The request body is not valid JSON: {error}") from None
        if not isinstance(found, dict):
            raise InvalidInput("The request body must be a JSON object")
        _check_storable(found, 0)
        return found


def _check_storable(value: Any, depth: int) -> None:  # noqa: ANN401 - JSON
    """Raise InvalidInput for what some database could not keep, wherever it is."""
    if depth > _DEEPEST:
        raise InvalidInput(f"The request body is nested deeper than {_DEEPEST} levels")
    if isinstance(value, str) and not is_storable(value):
        raise InvalidInput("The request body contains a NUL or half a surrogate pair")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput("The request body contains a number that is out of range")
    inner = [*value, *value.values()] if isinstance(value, dict) else value
    if isinstance(inner, list):
        for one in inner:
            _check_storable(one, depth + 1)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
