"""Lists of the leases that count towards the limits of a project or a user."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import nlargest

from climate.core.limits import Rules
from climate.db import limits as rows
from climate.db.leases import leases
from climate.db.limits import Party, UseOf
from climate.manager.process.runtime import Store

# Limits the answer.
_MOST_LEASES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseUse:
    """The hosts that a lease has booked from ``start`` to ``end``, as limits count them.

    ``host_hours`` is the number of hosts times the hours from ``start`` to ``end``. If a lease
    gained hosts later, there is one LeaseUse for the old hosts and one for the new hosts.
    ``lease_id`` and ``lease_name`` are None if the requester may not see the lease, or if the lease
    or its reservation was deleted.
    """

    lease_id: str | None
    lease_name: str | None
    start: datetime
    end: datetime
    hosts: int
    vcpus: float
    host_hours: float


def find(
    store: Store, settings: Rules, parties: Sequence[Party], seen_project: str | None
) -> list[list[LeaseUse]]:
    """Return, for each project or user in ``parties``, up to 100 leases with the most host-hours.

    The result includes leases that ended within the period of the limits (for example 30 days). If
    ``seen_project`` is set, the result does not show the id and the name of leases of other
    projects. The function executes one statement per party, and one for the names of the leases.
    """
    since = store.clock.now() - settings.period
    with store.database.read() as session:
        by_party = [
            nlargest(_MOST_LEASES, filter(_has_hosts, found), key=_host_hours)
            for party in parties
            for found in [rows.uses(session, [party], since, past_too=True)]
        ]
        seen = {
            entry.lease_id
            for entries in by_party
            for entry in entries
            if entry.lease_id is not None and seen_project in {None, entry.project_id}
        }
        names = leases.names(session, seen)
    return [_described(entries, names) for entries in by_party]


def _described(entries: Collection[UseOf], names: Mapping[str, str]) -> list[LeaseUse]:
    return [
        LeaseUse(
            lease_id=entry.lease_id if entry.lease_id in names else None,
            lease_name=names.get(entry.lease_id or ""),
            start=entry.use.start,
            end=entry.use.end,
            hosts=entry.use.hosts,
            vcpus=entry.use.vcpus,
            host_hours=_host_hours(entry),
        )
        for entry in entries
    ]


def _has_hosts(entry: UseOf) -> bool:
    return bool(entry.use.hosts or entry.use.vcpus)


def _host_hours(entry: UseOf) -> float:
    return entry.use.hosts * ((entry.use.end - entry.use.start) / timedelta(hours=1))
