"""Self-audit: check the invariants in the database, and notify when one breaks or holds again.

An invariant is a rule that the stored rows must always obey. Each check is divided into slices of
the database. When all slices are checked, a round is complete. Only one manager at a time checks an
invariant: the manager that has the *turn*. In its turn, the manager checks a few slices.

An invariant is broken from the first violation until a whole round finds no violation. The stored
verdict on an invariant states whether it is broken, and what the present round has found. climate
sends a notification only when an invariant becomes broken, or holds again.
"""

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice

from sqlalchemy.orm import Session

from climate.core.invariants import Verdict
from climate.core.notifications.event_type import INVARIANT_BROKEN, INVARIANT_HOLDS, EventType
from climate.db import invariants
from climate.db.invariants import LOOKS, Turn
from climate.db.notifications import outbox
from climate.manager.process.periodic_task import PeriodicTask
from climate.manager.process.runtime import Runtime, Store
from climate.observability.metrics import Metrics

LOG = logging.getLogger(__name__)

# Slices per turn, so that a turn takes seconds; and findings per turn that are stored and notified.
_SLICES = 20
_FINDINGS = 20
# The number of the invariant of the calendar in memory. Each process checks its own copy.
_MEMORY = 6


def violations(store: Store) -> Iterator[tuple[int, str]]:
    """Check all invariants on the whole database; yield a number and a text for each violation.

    The number identifies the invariant in ARCHITECTURE.md.
    """
    for name, (number, _) in LOOKS.items():
        for findings, _ in slices(store, name, ""):
            yield from ((number, finding) for finding in findings)


def slices(store: Store, name: str, position: str) -> Iterator[tuple[list[str], str | None]]:
    """Check the invariant ``name`` from ``position`` on, one slice of the database at a time.

    Yields the violations in each slice, and the position of the next slice (None after the last).
    The position ``""`` is the beginning.
    """
    check = LOOKS[name][1]
    following: str | None = position
    while following is not None:
        with store.database.snapshot() as session:
            findings, following = check(session, following, store.clock.now())
        yield findings, following


def check_once(runtime: Runtime) -> None:
    """Check a few slices of each invariant that is due, unless another manager checks it now.

    Then set the metrics that state which invariants are broken. They include the invariants that
    other managers have found to be broken.
    """
    for name in LOOKS:
        now = runtime.clock.now()
        until = now + timedelta(seconds=runtime.settings.self_audit_interval)
        with runtime.database.read() as session:
            is_due = invariants.is_due(session, name, now)
        take = partial(invariants.take_turn, name=name, now=now, until=until)
        turn = runtime.database.write(take) if is_due else None
        if turn is not None:
            _check(runtime.store, turn)
            runtime.wakeup.hint()
    with runtime.database.read() as session:
        broken = invariants.broken(session)
    numbers = {LOOKS[name][0] for name in broken if name in LOOKS}
    for number in {number for number, _ in LOOKS.values()}:
        runtime.metrics.invariant(number, broken=number in numbers)


def _check(store: Store, turn: Turn) -> None:
    checked = list(islice(slices(store, turn.name, turn.position), _SLICES))
    position = checked[-1][1]
    findings = [finding for slice_, _ in checked for finding in slice_][:_FINDINGS]
    now = store.clock.now()
    verdict = turn.verdict.after(findings, now, is_round_over=position is None)
    work = partial(_store, turn, position or "", verdict, findings, now)
    if event_type := store.database.write(work):
        level = logging.ERROR if event_type == INVARIANT_BROKEN else logging.WARNING
        details = (LOOKS[turn.name][0], turn.name, "; ".join(findings))
        LOG.log(level, "%s %s (%s): %s", event_type, *details)


def _store(
    turn: Turn,
    position: str,
    verdict: Verdict,
    findings: list[str],
    now: datetime,
    session: Session,
) -> EventType | None:
    """Store the verdict on an invariant; notify if the invariant became broken or holds again.

    ``turn`` is the right of this manager to check the invariant. If another manager has taken over
    the turn in the meantime, nothing is stored. The next turn continues at ``position``.
    ``findings`` are the violations for the notification. Returns the type of the notification; None
    if there was none.
    """
    before, since = turn.verdict.broken_since, verdict.broken_since
    is_stored = invariants.store(session, turn, position, verdict)
    if not is_stored or (before is None) == (since is None):
        return None
    event_type = INVARIANT_HOLDS if since is None else INVARIANT_BROKEN
    payload = {
        "lease_id": None,
        "project_id": "",
        "invariant": LOOKS[turn.name][0],
        "look": turn.name,
        "found": findings,
        "broken_since": str(since or before),
    }
    outbox.write(session, event_type, payload, now)
    return event_type


def report_memory(store: Store, metrics: Metrics, findings: Sequence[str]) -> None:
    """Notify operators that the calendar in memory differs from the database, or no longer does.

    ``findings`` are the differences. If it is empty, the calendar agrees with the database again.
    """
    event_type = INVARIANT_BROKEN if findings else INVARIANT_HOLDS
    level = logging.ERROR if findings else logging.WARNING
    LOG.log(level, "%s %s (calendar memory): %s", event_type, _MEMORY, "; ".join(findings))
    metrics.invariant(_MEMORY, broken=bool(findings))
    now = store.clock.now()
    payload = {
        "lease_id": None,
        "project_id": "",
        "invariant": _MEMORY,
        "look": "calendar_memory",
        "found": list(findings),
        "broken_since": str(now),
    }
    store.database.write(lambda session: outbox.write(session, event_type, payload, now))


def self_audit(runtime: Runtime) -> PeriodicTask:
    """Return a task that checks the invariants every ``self_audit_interval`` seconds.

    The first check runs one interval after the task starts.
    """
    interval = runtime.settings.self_audit_interval
    check = partial(check_once, runtime)
    return PeriodicTask("self-audit", check, interval=interval, runs_at_start=False)
