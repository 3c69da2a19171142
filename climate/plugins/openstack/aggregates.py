"""Changes Nova's host aggregates; safe if several processes change them at the same time.

climate creates, changes or deletes an aggregate only while it holds a lock for it in the database.
At each change, Nova sends the hosts of the aggregate to its scheduler (Nova 34). Without the lock,
two simultaneous changes would each send a list without the other's host, and the scheduler would
permanently miss a host. The free pool is the aggregate of hosts that no lease uses now, and the
scheduler keeps all projects off its hosts. So a host that the scheduler misses there would be open
to all projects.

A change succeeds if another process has already made the same change.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any

from novaclient import exceptions as nova_errors
from novaclient.v2.client import Client

from climate.plugins.base import Turn

#: Metadata of an aggregate whose hosts nova-scheduler uses first. These weighers count from 0, so a
#: host with free capacity has a positive weight, which the factor makes larger than all others.
FIRST = dict.fromkeys(
    ("ram_weight_multiplier", "cpu_weight_multiplier", "disk_weight_multiplier"), "1000000"
)


class AggregateChanges:
    """Changes Nova's host aggregates, each under a lock. Raises novaclient's errors."""

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
        """Return the host aggregate with this name and metadata; create or change it if necessary.

        ``present`` is the aggregate as the caller has read it, or None if it does not exist.
        ``zone`` is the availability zone of a new aggregate; the zone of an existing one does not
        change. Nova may fail to set the metadata, for instance because another request sets them at
        the same time. If the aggregate has all of the metadata afterwards, the method succeeds.
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
        """Add a host to a host aggregate, if the aggregate does not contain the host yet."""
        try:
            with self._lock(aggregate.name):
                aggregate.add_host(host)
        except nova_errors.Conflict:
            if host not in self._nova.aggregates.get(aggregate.id).hosts:
                raise

    def leave(self, aggregate: Any, host: str) -> None:  # noqa: ANN401 - novaclient's
        """Remove a host from a host aggregate; do nothing if one of the two does not exist."""
        with self._lock(aggregate.name), suppress(nova_errors.NotFound):
            aggregate.remove_host(host)

    def delete(self, aggregate: Any) -> None:  # noqa: ANN401 - novaclient's
        """Delete a host aggregate, if it exists. Nova refuses while the aggregate has hosts.

        Without the lock, a host could join between Nova's check and the deletion, and then leave
        the free pool for an aggregate that is gone.
        """
        with self._lock(aggregate.name), suppress(nova_errors.NotFound):
            aggregate.delete()

    def _lock(self, name: str) -> AbstractContextManager[object]:
        return self._turn(f"aggregate {name}")
