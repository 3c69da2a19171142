"""How long before a lease its hosts are asked for: what was learned, kept for a while."""

import threading
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from climate.core.lease.model import Resource
from climate.core.provisioning import lead_time
from climate.core.provisioning.lead_time import Lead, Profile
from climate.core.settings import Provisioning
from climate.db.provisioning import readiness

# What is learned changes slowly, and all of it is read to know it.
_FRESH = timedelta(minutes=1)
_CLASS = ("hardware", "hypervisor_type")
_LONGEST = 255


def hardware(host: Resource) -> str:
    """Return which class a host is of: its property ``hardware``, or its ``hypervisor_type``."""
    found = (host.properties[name] for name in _CLASS if host.properties.get(name))
    return next(found, "")[:_LONGEST]


def node(host: Resource) -> str:
    """Return the name of the node: ``node_name``, ``hypervisor_hostname``, or the host's own."""
    found = (host.properties.get(name) for name in ("node_name", "hypervisor_hostname"))
    return next(filter(None, found), host.external_id)[:_LONGEST]


class LeadTimes:
    """What was learned of all hosts, read again when it is a minute old. Threads may share it."""

    def __init__(self, settings: Provisioning) -> None:
        """Know nothing yet."""
        self._settings = settings
        self._lock = threading.Lock()
        self._read_at: datetime | None = None
        self._times: Mapping[int, Sequence[float]] = {}
        self._profiles: Mapping[str, Profile] = {}

    def refresh(self, session: Session, now: datetime) -> None:
        """Learn again if that was long ago."""
        with self._lock:
            if self._read_at is not None and now - self._read_at < _FRESH:
                return
            self._read_at = now
            found = readiness.times(session)
            by_host = {str(id_): times for id_, (_, times) in found.items()}
            classes = {str(id_): name for id_, (name, _) in found.items()}
            self._times = {id_: times for id_, (_, times) in found.items()}
            self._profiles = lead_time.profiles(by_host, classes, self._settings.policy)

    def lead(self, host: Resource, hosts: int) -> Lead:
        """Return the lead of one host of a lease that has so many."""
        policy = self._settings.policy
        like = self._profiles.get(hardware(host)) or lead_time.profile((), policy)
        quantile = lead_time.of_all(self._settings.share, hosts)
        return lead_time.lead(self._times.get(host.id, ()), like, quantile, policy)
