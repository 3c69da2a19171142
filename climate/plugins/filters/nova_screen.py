"""The screen of Nova's filters: it runs them one after the other on all candidate hosts."""

import inspect
import logging
from collections.abc import Callable, Sequence
from importlib import import_module
from threading import Lock
from typing import Any, Protocol, TypeVar

from climate.config.registry import Misconfigured
from climate.core.errors import ClimateError, SelectionFilterFailed
from climate.core.lease.model import HOST
from climate.core.matching.requirement import Requirement
from climate.core.matching.selection import Candidate
from climate.plugins.filters.nova_objects import NovaObjects

LOG = logging.getLogger(__name__)
_BASE = "nova.scheduler.filters"
T = TypeVar("T")


class Objects(Protocol):
    """Makes the objects that filters read."""

    def host_state(self, candidate: Candidate) -> Any:  # noqa: ANN401 - Nova has no types
        """Return the ``HostState`` of a candidate."""

    def request_spec(self, requirement: Requirement) -> Any:  # noqa: ANN401 - Nova has no types
        """Return the ``RequestSpec`` of a requirement."""


class NovaScreen:
    """Returns the candidate hosts that all filters accept; other resources pass.

    Each process has one instance of each filter, as in Nova, so a filter can keep state. Nova
    filters are not written for threads, so one request at a time runs through them.
    """

    def __init__(self, filters: Sequence[Any], objects: Objects) -> None:
        self._filters = filters
        self._objects = objects
        self._lock = Lock()

    def __call__(
        self, candidates: Sequence[Candidate], requirement: Requirement
    ) -> Sequence[Candidate]:
        """Return the candidates that pass, in their order.

        Raises SelectionFilterFailed if a filter raises. Raises InvalidInput if Nova rejects the
        extra specs of the request.
        """
        if requirement.resource_type != HOST or not candidates:
            return candidates
        with self._lock:
            spec = _made(self._objects.request_spec, requirement)
            states = [_made(self._objects.host_state, candidate) for candidate in candidates]
            passing = {id(state) for state in self._run(states, spec)}
        pairs = zip(candidates, states, strict=True)
        return [candidate for candidate, state in pairs if id(state) in passing]

    def _run(self, states: Sequence[Any], spec: Any) -> Sequence[Any]:  # noqa: ANN401 - Nova's
        for each in self._filters:
            try:
                if each.run_filter_for_index(0):
                    states = list(each.filter_all(states, spec) or ())
            except Exception as error:
                name = f"{type(each).__module__}.{type(each).__qualname__}"
                LOG.exception("the filter %s of Nova failed", name)
                raise SelectionFilterFailed(
                    f"The operator's filter {name} failed; nothing was changed", {"filter": name}
                ) from error
            if not states:
                break
        return states


def _made(make: Callable[[T], Any], source: T) -> Any:  # noqa: ANN401 - Nova has no types
    try:
        return make(source)
    except ClimateError:
        raise
    except Exception as error:
        about = source.resource.external_id if isinstance(source, Candidate) else "the request"
        LOG.exception("cannot make the object that Nova's filters read about %s", about)
        raise SelectionFilterFailed(
            "climate cannot make the objects that Nova's filters read; nothing was changed"
        ) from error


def load_screen(names: Sequence[str], config_files: Sequence[str]) -> NovaScreen:
    """Import Nova and the filter classes ``names``, such as ``package.module.FilterClass``.

    ``config_files`` are files of Nova, from which the filters read their options. Raises
    Misconfigured if Nova or a class cannot be imported, or if a class is no filter.
    """
    try:
        base = import_module(_BASE).BaseHostFilter
        objects = NovaObjects(config_files)
    except ImportError as error:
        raise Misconfigured(
            f"[selection] nova_filters needs the package nova in climate's environment: {error}"
        ) from error
    except Exception as error:
        raise Misconfigured(f"[selection] nova_config_files: {error}") from error
    return NovaScreen([_filter(name, base) for name in names], objects)


def _filter(name: str, base: Any) -> Any:  # noqa: ANN401 - Nova has no types
    module, _, attribute = name.rpartition(".")
    where = f"[selection] nova_filters: {name}"
    try:
        found = getattr(import_module(module), attribute)
    except Exception as error:
        raise Misconfigured(f"{where} cannot be imported: {error}") from error
    if not (inspect.isclass(found) and issubclass(found, base)):
        raise Misconfigured(f"{where} is not a class derived from {_BASE}.BaseHostFilter")
    try:
        return found()
    except Exception as error:
        raise Misconfigured(f"{where} cannot be created: {error}") from error
