"""Creation times: how early climate must begin to create servers, volumes, networks and stacks.

climate estimates this from the durations of earlier creations. It caches these durations for a
minute.
"""

import math
import threading
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from climate.core.lease.on_start import Kind
from climate.core.provisioning import lead_time
from climate.core.provisioning.lead_time import Profile
from climate.core.settings import Creation
from climate.db.provisioning import creation_times

_MAX_AGE = timedelta(minutes=1)


class CreationTimes:
    """Estimates the lead of leases: how long before the start a creation must begin. Thread-safe.

    The estimate for an image or a template uses its own earlier durations, and those of all
    creations of the same resource type.
    """

    def __init__(self, settings: Creation) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._read_at: datetime | None = None
        self._times: Mapping[Kind, Sequence[float]] = {}
        self._profiles: Mapping[str, Profile] = {}

    def lead(self, session: Session, kinds: Collection[Kind], now: datetime) -> timedelta:
        """Return how long before the start climate must begin to create all these ``kinds``.

        The result is in whole seconds. It is 0 if there are no kinds.
        """
        if not kinds:
            return timedelta(0)
        self._refresh(session, now)
        share = lead_time.of_all(self._settings.share, len(kinds))
        return timedelta(seconds=math.ceil(max(self._seconds(kind, share) for kind in kinds)))

    def _seconds(self, kind: Kind, share: float) -> float:
        policy = self._settings.policy
        profile = self._profiles.get(kind.resource_type) or lead_time.profile((), policy)
        return lead_time.lead(self._times.get(kind, ()), profile, share, policy).seconds

    def _refresh(self, session: Session, now: datetime) -> None:
        with self._lock:
            if self._read_at is not None and abs(now - self._read_at) < _MAX_AGE:
                return
            times = creation_times.find_all(session)
            types = {kind: kind.resource_type for kind in times}
            self._profiles = lead_time.profiles(times, types, self._settings.policy)
            self._times = times
            self._read_at = now  # last: after a failed query, the next call queries again
