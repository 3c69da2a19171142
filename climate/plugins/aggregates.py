"""Nova's host aggregates, changed so that it does not matter who else is at it.

The API registers a host while a manager finds it unfinished; two requests need the free pool
first. Whoever comes second must not take that for a failure.
"""

from typing import Any

from novaclient import exceptions as refusals
from novaclient.v2.client import Client


def make(nova: Client, name: str, zone: str | None) -> Any:  # noqa: ANN401 - novaclient's
    """Return the aggregate of this name, made if it is not there."""
    try:
        return nova.aggregates.create(name, zone)
    except refusals.Conflict:
        for found in nova.aggregates.list():
            if found.name == name:
                return found
        raise


def join(nova: Client, aggregate: Any, host: str) -> None:  # noqa: ANN401 - novaclient's
    """Put a host into an aggregate; fine if it is in it."""
    try:
        aggregate.add_host(host)
    except refusals.Conflict:
        if host not in nova.aggregates.get(aggregate.id).hosts:
            raise
