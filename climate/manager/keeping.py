"""Keeping claims: ours are extended while we work, those that nobody extends are taken over.

No clock is compared with another's here. Whoever has a claim counts, on its own ``elapsed``, from
before it asked the database for it or extended it. Whoever waits for it counts from after it saw
the claim stored like that. Both count as long, so the one has stopped before the other begins,
however their wall clocks differ, jump, or stand still.
"""

import logging
from collections.abc import Collection, Mapping

from climate.db import events
from climate.db.events import Held
from climate.manager.claims import Claim
from climate.manager.runtime import Runtime

LOG = logging.getLogger(__name__)


class Keeper:
    """Looks after the claims of one manager, and after those of managers that died."""

    def __init__(self, runtime: Runtime, owner: str) -> None:
        """Prepare; nothing was seen yet."""
        self._runtime = runtime
        self._owner = owner
        self._seen: dict[str, tuple[Held, float]] = {}

    def until(self) -> float:
        """Return how long a claim that is asked for now lasts, as ``elapsed`` will say."""
        return self._runtime.clock.elapsed() + self._runtime.settings.claim_timeout.total_seconds()

    def keep(self, mine: Mapping[str, Claim]) -> None:
        """Extend claims of ours; one that is another's by now is permitted nothing more."""
        if not mine:
            return
        until = self.until()
        stored = self._runtime.clock.now() + self._runtime.settings.claim_timeout
        kept = self._runtime.database.write(
            lambda session: events.extend(session, self._owner, list(mine), stored)
        )
        for id_, claim in mine.items():
            if kept.get(id_) == claim.attempt:
                claim.fencing_token.extend(until)

    def take_over(self, mine: Collection[str]) -> int:
        """Return claims that were not extended for as long as they last; return how many."""
        with self._runtime.database.read() as session:
            there = events.claimed(session)
        now, lasts = self._runtime.clock.elapsed(), self._runtime.settings.claim_timeout
        self._seen = {
            id_: (held, self._since(id_, held, now))
            for id_, held in there.items()
            if id_ not in mine
        }
        late = now - lasts.total_seconds()
        stale = {id_: held for id_, (held, since) in self._seen.items() if since <= late}
        if not stale:
            return 0
        reaped = self._runtime.database.write(lambda session: events.reap(session, stale))
        if reaped:
            LOG.warning("took over %s event(s) of managers that stopped answering", reaped)
        return reaped

    def _since(self, event_id: str, held: Held, now: float) -> float:
        before = self._seen.get(event_id)
        return before[1] if before is not None and before[0] == held else now
