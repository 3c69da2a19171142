"""URL builders and compiled SQL, shared by all services of a test process.

Nearly every test makes a service. Two thirds of the time that this took went into URL builders,
which werkzeug compiles for each route; each new engine then compiled every SQL statement again.
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy.engine import Engine
from sqlalchemy.engine.default import DefaultDialect
from werkzeug.routing import Rule


def share_url_builders() -> None:
    """Share the builders of equal routes between applications."""
    compile_builder = Rule._compile_builder
    builders: dict[object, Callable[..., tuple[str, str]]] = {}

    def share(rule: Rule, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        key = (append_unknown, tuple(rule._trace), repr(rule.defaults))
        if key not in builders:
            builders[key] = compile_builder(rule, append_unknown)
        return builders[key]

    Rule._compile_builder = share  # type: ignore[method-assign]


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

    Engine.__init__ = share  # type: ignore[method-assign]
    # The dialect is part of the cache's key; those of one class compile alike.
    DefaultDialect.__eq__ = lambda self, other: type(self) is type(other)  # type: ignore[method-assign]
    DefaultDialect.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign]
