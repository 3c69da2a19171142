"""Nova's host aggregates, changed so that it does not matter who else is at it.

The API registers a host while a manager finds it unfinished; two requests need the free pool
first. Whoever comes second must not take that for a failure.

Two changes of one aggregate at the same time are worse (tried with Nova 34): each tells the
scheduler the hosts that it knows of, so the scheduler misses one for good, and lets everybody onto
a host that is in the free pool. Hence one at a time in a process.
"""

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from novaclient import exceptions as refusals
from novaclient.v2.client import Client

_TURN = threading.Lock()


def ensure(
    nova: Client,
    present: Any | None,  # noqa: ANN401 - novaclient's
    name: str,
    zone: str | None,
    metadata: Mapping[str, str],
) -> Any:  # noqa: ANN401 - novaclient's
    """Return the aggregate of this name, made and tagged if need be; ``present`` if it was seen.

    Nova answers 500 to one of two who tag the same aggregate at the same time.
    """
    with _TURN:
        found = present or _make(nova, name, zone)
        if not metadata.items() <= found.metadata.items():
            try:
                found.set_metadata(dict(metadata))
            except refusals.ClientException:  # perhaps another process was first
                if not metadata.items() <= nova.aggregates.get(found.id).metadata.items():
                    raise
    return found


def _make(nova: Client, name: str, zone: str | None) -> Any:  # noqa: ANN401 - novaclient's
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
        with _TURN:
            aggregate.add_host(host)
    except refusals.Conflict:
        if host not in nova.aggregates.get(aggregate.id).hosts:
            raise


def leave(aggregate: Any, host: str) -> None:  # noqa: ANN401 - novaclient's
    """Take a host out of an aggregate; fine if either is gone."""
    with _TURN, suppress(refusals.NotFound):
        aggregate.remove_host(host)
