"""Nova's host aggregates, changed so that it does not matter who else is at it.

The API registers a host while a manager finds it unfinished; two requests need the free pool
first. Whoever comes second must not take that for a failure.

Two changes of one aggregate at the same time are worse (tried with Nova 34): each tells the
scheduler the hosts that it knows of, so the scheduler misses one for good, and lets everybody onto
a host that is in the free pool. Hence one at a time, whichever process makes it.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any

from novaclient import exceptions as refusals
from novaclient.v2.client import Client

from climate.plugins.base import Turn


class AggregateChanges:
    """Changes of aggregates, each in the turn of its aggregate."""

    def __init__(self, nova: Client, turn: Turn) -> None:
        """Make changes through ``nova``."""
        self._nova = nova
        self._turn = turn

    def ensure(
        self,
        present: Any | None,  # noqa: ANN401 - novaclient's
        name: str,
        zone: str | None,
        metadata: Mapping[str, str],
    ) -> Any:  # noqa: ANN401 - novaclient's
        """Return the aggregate of this name, made and tagged if need be; ``present`` if seen.

        Nova answers 500 to one of two who tag the same aggregate at the same time.
        """
        if present and metadata.items() <= present.metadata.items():
            return present
        with self._of(name):
            found = present or self._make(name, zone)
            if not metadata.items() <= found.metadata.items():
                try:
                    found.set_metadata(dict(metadata))
                except refusals.ClientException:  # perhaps somebody else was first
                    tagged = self._nova.aggregates.get(found.id)
                    if not metadata.items() <= tagged.metadata.items():
                        raise
        return found

    def _make(self, name: str, zone: str | None) -> Any:  # noqa: ANN401 - novaclient's
        try:
            return self._nova.aggregates.create(name, zone)
        except refusals.Conflict:
            for found in self._nova.aggregates.list():
                if found.name == name:
                    return found
            raise

    def join(self, aggregate: Any, host: str) -> None:  # noqa: ANN401 - novaclient's
        """Put a host into an aggregate; fine if it is in it."""
        try:
            with self._of(aggregate.name):
                aggregate.add_host(host)
        except refusals.Conflict:
            if host not in self._nova.aggregates.get(aggregate.id).hosts:
                raise

    def leave(self, aggregate: Any, host: str) -> None:  # noqa: ANN401 - novaclient's
        """Take a host out of an aggregate; fine if either is gone."""
        with self._of(aggregate.name), suppress(refusals.NotFound):
            aggregate.remove_host(host)

    def _of(self, name: str) -> AbstractContextManager[object]:
        return self._turn(f"aggregate {name}")
