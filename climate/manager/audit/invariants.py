"""The self-audit: do the invariants hold? One that breaks is told once, and once when it holds.

Each is looked at by one manager at a time, a few slices at each turn, all of it in a round. What a
round finds is kept; a clean round says that it holds again.
"""

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import islice

from sqlalchemy.orm import Session

from climate.core.invariants import Verdict
from climate.db import outbox, self_audit
from climate.db.engine import is_unavailable
from climate.db.invariants import LOOKS
from climate.db.self_audit import Turn
from climate.manager.process.runtime import Runtime
from climate.manager.process.timer import Timer

LOG = logging.getLogger(__name__)

BROKEN, HOLDS = "audit.invariant_broken", "audit.invariant_holds"
# What is looked at in a turn, and how much of what was found is kept and told.
_SLICES = 20
_FINDINGS = 20


def violations(runtime: Runtime) -> Iterator[tuple[int, str]]:
    """Return all that is wrong now, with the number of the invariant: a whole round of each."""
    for name, (number, _) in LOOKS.items():
        for found, _ in slices(runtime, name, ""):
            yield from ((number, what) for what in found)


def slices(runtime: Runtime, name: str, position: str) -> Iterator[tuple[list[str], str | None]]:
    """Look on from ``position`` to the end of the round; return what was found, and how far."""
    look = LOOKS[name][1]
    following: str | None = position
    while following is not None:
        with runtime.database.snapshot() as session:
            found, following = look(session, following, runtime.clock.now())
        yield found, following


def look_once(runtime: Runtime) -> None:
    """Take the turns that nobody has, and look."""
    for name in LOOKS:
        now = runtime.clock.now()
        until = now + timedelta(seconds=runtime.settings.self_audit_interval)
        with runtime.database.read() as session:
            is_due = self_audit.is_due(session, name, now)
        take = partial(self_audit.take_turn, name=name, now=now, until=until)
        turn = runtime.database.write(take) if is_due else None
        if turn is not None:
            _look(runtime, turn)
    show(runtime)


def show(runtime: Runtime) -> None:
    """Have the metrics tell what is known, whoever found it."""
    with runtime.database.read() as session:
        broken = self_audit.broken(session)
    numbers = {LOOKS[name][0] for name in broken if name in LOOKS}
    for number in {number for number, _ in LOOKS.values()}:
        runtime.metrics.invariant(number, broken=number in numbers)


def _look(runtime: Runtime, turn: Turn) -> None:
    looks = list(islice(slices(runtime, turn.name, turn.position), _SLICES))
    position = looks[-1][1]
    kept = [what for found, _ in looks for what in found][:_FINDINGS]
    now = runtime.clock.now()
    verdict = turn.verdict.after(kept, now, is_round_over=position is None)
    news = runtime.database.write(partial(_store, turn, position or "", verdict, kept, now))
    if news:
        level = logging.ERROR if news == BROKEN else logging.WARNING
        LOG.log(level, "%s %s (%s): %s", news, LOOKS[turn.name][0], turn.name, "; ".join(kept))
    runtime.wakeup.hint()


def _store(
    turn: Turn, position: str, verdict: Verdict, kept: list[str], now: datetime, session: Session
) -> str | None:
    """Store what is known now; tell, and return, what is new about it."""
    before, since = turn.verdict.broken_since, verdict.broken_since
    if not self_audit.store(session, turn, position, verdict) or (before is None) == (
        since is None
    ):
        return None
    news = HOLDS if since is None else BROKEN
    known = {"invariant": LOOKS[turn.name][0], "look": turn.name, "found": kept}
    payload = {"lease_id": None, "project_id": "", **known, "broken_since": str(since or before)}
    outbox.write(session, news, payload, now)
    return news


class SelfAudit:
    """Looks from time to time until it is stopped."""

    def __init__(self, runtime: Runtime) -> None:
        """Prepare; nothing happens before ``start``."""
        self._runtime = runtime
        self._timer = Timer(runtime.clock)

    def start(self) -> None:
        """Begin to look, in a thread of the timer, if there is to be a self-audit."""
        interval = self._runtime.settings.self_audit_interval
        if interval:
            self._timer.every(interval, self._look, "self-audit")
            self._timer.start()

    def stop(self) -> None:
        """Look no more; a look under way is finished."""
        self._timer.stop()

    def _look(self) -> None:
        try:
            look_once(self._runtime)
        except Exception as error:
            detail = None if is_unavailable(error) else error
            LOG.warning("the invariants were not looked at: %s", error, exc_info=detail)
