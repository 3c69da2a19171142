"""Compiled URL rules, compiled SQL and policy rules, shared by all services of a test process.

Nearly every test makes a service. Two thirds of the time that this took went into URL builders,
which werkzeug compiles for each route; each new engine then compiled every SQL statement again.
"""

import copy
from typing import Any

from oslo_policy.policy import RuleDefault
from sqlalchemy.engine import Engine
from sqlalchemy.engine.default import DefaultDialect
from werkzeug.routing import Rule

# What werkzeug's Rule.compile() computes from the text of a rule.
_COMPILED = ("_parts", "_trace", "_converters", "arguments", "_build", "_build_unknown")


def share_url_rules() -> None:
    """Share what werkzeug compiles for equal routes between applications."""
    compile_rule = Rule.compile
    cache: dict[object, dict[str, Any]] = {}

    def share(self: Rule) -> None:
        place = (self.rule, self.host, self.subdomain, self.merge_slashes, repr(self.defaults))
        key = (place, self.map.host_matching, frozenset(self.map.converters.items()))
        if key not in cache:
            compile_rule(self)
            cache[key] = {name: getattr(self, name) for name in _COMPILED}
        vars(self).update(cache[key])

    Rule.compile = share  # type: ignore[method-assign]


def share_policy_rules() -> None:
    """Let enforcers copy default rules, but not the checks in them, which no enforcer changes."""
    RuleDefault.__deepcopy__ = lambda self, _memo: copy.copy(self)  # type: ignore[attr-defined]


def share_compiled_sql() -> None:
    """Share compiled statements between engines of one dialect."""
    initialise = Engine.__init__
    caches: dict[type, Any] = {}

    # create_engine() passes only the options that it finds in the signature.
    def share(
        self: Engine, pool: Any, dialect: Any, url: Any, hide_parameters: bool = False, **rest: Any
    ) -> None:
        initialise(self, pool, dialect, url, hide_parameters=hide_parameters, **rest)
        if self._compiled_cache is not None:
            self._compiled_cache = caches.setdefault(type(self.dialect), self._compiled_cache)

    Engine.__init__ = share  # type: ignore[method-assign, assignment]
    # The dialect is part of the cache's key; those of one class compile alike.
    DefaultDialect.__eq__ = lambda self, other: type(self) is type(other)  # type: ignore[method-assign]
    DefaultDialect.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign]
