"""Lead times: how long before a lease the preparation of a host must begin.

climate estimates lead times from the durations of the hosts' last preparations. It caches these
durations for a minute.
"""

import threading
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from climate.core.lease.model import HOST, Resource, hardware
from climate.core.matching import query
from climate.core.provisioning import lead_time
from climate.core.provisioning.lead_time import Lead, Profile
from climate.core.settings import Provisioning
from climate.db.provisioning import readiness

# Lead times change slowly, and reading them scans a whole table.
_MAX_AGE = timedelta(minutes=1)


class LeadTimes:
    """Estimates the lead times of hosts: how long before a lease their preparation must begin.

    The estimate uses a cache of the durations of the hosts' last preparations. Thread-safe.
    """

    def __init__(self, settings: Provisioning) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._read_at: datetime | None = None
        self._times: Mapping[int, Sequence[float]] = {}
        self._profiles: Mapping[str, Profile] = {}

    def of_lease(
        self, session: Session, hosts: Collection[Resource], share: float, now: datetime
    ) -> float:
        """Return how many seconds before a lease the preparation of its hosts must begin.

        Hosts that no provisioner prepares need no time. ``share`` is that of ``lead``.
        """
        self.refresh(session, now)
        wanted = self._settings.hosts
        prepared = [
            each for each in hosts if each.type == HOST and query.matches(wanted, each.properties)
        ]
        leads = (self.lead(host, len(prepared), share).seconds for host in prepared)
        return max(leads, default=0.0)

    def refresh(self, session: Session, now: datetime) -> None:
        """Read the durations of all hosts from the database if the cache is older than a minute."""
        with self._lock:
            if self._read_at is not None and now - self._read_at < _MAX_AGE:
                return
            rows = readiness.times(session)
            by_host = {str(id_): times for id_, (_, times) in rows.items()}
            classes = {str(id_): name for id_, (name, _) in rows.items()}
            self._times = {id_: times for id_, (_, times) in rows.items()}
            self._profiles = lead_time.profiles(by_host, classes, self._settings.policy)
            self._read_at = now  # last: after a failed query, the next call queries again

    def lead(self, host: Resource, hosts: int, share: float | None = None) -> Lead:
        """Return the lead time of ``host`` for a lease, and how it was computed.

        ``hosts`` is the number of hosts in the lease. The lead time (field ``seconds`` of the
        result) grows with this number, because all hosts must be ready in time. ``share`` is the
        wanted fraction of leases whose hosts are all ready in time (None: the operator's setting).
        The caller must call ``refresh`` first.
        """
        policy = self._settings.policy
        profile = self._profiles.get(hardware(host)) or lead_time.profile((), policy)
        quantile = lead_time.of_all(share or self._settings.share, hosts)
        return lead_time.lead(self._times.get(host.id, ()), profile, quantile, policy)
