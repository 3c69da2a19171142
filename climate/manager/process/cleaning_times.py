"""Cleaning times: how long bare-metal nodes stay booked after a lease, because they are cleaned.

climate estimates this from the durations of the last cleanings of nodes of the same resource class.
It caches these durations for a minute.
"""

import math
import threading
from collections.abc import Mapping
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from climate.core.provisioning import lead_time
from climate.core.settings import CleaningRules
from climate.db.provisioning import cleanings

_MAX_AGE = timedelta(minutes=1)


class CleaningTimes:
    """Estimates how long the nodes of each resource class are cleaned. Thread-safe."""

    def __init__(self, rules: CleaningRules) -> None:
        self._rules = rules
        self._lock = threading.Lock()
        self._read_at: datetime | None = None
        self._spans: Mapping[str, timedelta] = {}

    def by_class(self, session: Session, now: datetime) -> Mapping[str, timedelta]:
        """Return how long the nodes of each resource class are cleaned, in whole seconds.

        Classes of which climate has measured no cleaning are left out.
        """
        with self._lock:
            if self._read_at is None or abs(now - self._read_at) >= _MAX_AGE:
                times = cleanings.times(session)
                self._spans = {name: self._span(of_class) for name, of_class in times.items()}
                self._read_at = now  # last: after a failed query, the next call queries again
            return self._spans

    def _span(self, times: list[float]) -> timedelta:
        share, policy = self._rules.share, self._rules.policy
        known = lead_time.profile([times], policy)
        return timedelta(seconds=math.ceil(lead_time.lead(times, known, share, policy).seconds))
