"""Changes of Nova's host aggregates that are safe against concurrent changes.

climate changes an aggregate under an advisory lock, one process at a time. With two concurrent
changes, each sends the scheduler the hosts that it knows (Nova 34). The scheduler then misses one
host for good, and opens a host of the free pool to all projects. A process that comes second, for
instance to create the free pool, succeeds.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any

from novaclient import exceptions as nova_errors
from novaclient.v2.client import Client

from climate.plugins.base import Turn


class AggregateChanges:
    """Changes of aggregates, each under the lock of its aggregate."""

    def __init__(self, nova: Client, turn: Turn) -> None:
        self._nova = nova
        self._turn = turn

    def ensure(
        self,
        present: Any | None,  # noqa: ANN401 - novaclient's
        name: str,
        zone: str | None,
        metadata: Mapping[str, str],
    ) -> Any:  # noqa: ANN401 - novaclient's
        """Return the aggregate of this name; create and tag it if necessary.

        ``present`` is the aggregate if the caller has read it. Nova answers 500 to one of two
        requests that tag the same aggregate at the same time.
        """
        if present and metadata.items() <= present.metadata.items():
            return present
        with self._lock(name):
            aggregate = present or self._create(name, zone)
            if not metadata.items() <= aggregate.metadata.items():
                try:
                    aggregate.set_metadata(dict(metadata))
                except nova_errors.ClientException:  # another process may have tagged it
                    tagged = self._nova.aggregates.get(aggregate.id)
                    if not metadata.items() <= tagged.metadata.items():
                        raise
        return aggregate

    def _create(self, name: str, zone: str | None) -> Any:  # noqa: ANN401 - novaclient's
        try:
            return self._nova.aggregates.create(name, zone)
        except nova_errors.Conflict:
            for aggregate in self._nova.aggregates.list():
                if aggregate.name == name:
                    return aggregate
            raise

    def join(self, aggregate: Any, host: str) -> None:  # noqa: ANN401 - novaclient's
        """Add a host to an aggregate; succeeds if it is already in it."""
        try:
            with self._lock(aggregate.name):
                aggregate.add_host(host)
        except nova_errors.Conflict:
            if host not in self._nova.aggregates.get(aggregate.id).hosts:
                raise

    def leave(self, aggregate: Any, host: str) -> None:  # noqa: ANN401 - novaclient's
        """Remove a host from an aggregate; succeeds if either is gone."""
        with self._lock(aggregate.name), suppress(nova_errors.NotFound):
            aggregate.remove_host(host)

    def _lock(self, name: str) -> AbstractContextManager[object]:
        return self._turn(f"aggregate {name}")
