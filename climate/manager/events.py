"""Running events: what each kind does, and how its outcome is stored.

Events are claimed (transaction 1), begun (2: their leases are looked at again, under their locks),
acted on through the plugins (no transaction), and finished (3: fenced on owner and attempt, with
the leases' new states and the notifications). Events that only tell need one transaction after the
claim. What is done quickly is claimed, begun and finished many at a time. What becomes of failures
is in ``failures``.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from sqlalchemy.orm import Session

from climate.core.lease.lifecycle import EventStatus, LeaseStatus
from climate.core.lease.model import Lease
from climate.core.lease.schedule import END, OWN_KINDS, PATIENCE, RELEASE, START
from climate.db import events, leases, progress
from climate.db.engine.database import is_unavailable, on_commit
from climate.db.limits import keep_past_use
from climate.db.resources import allocations
from climate.manager import acting, holds, outcomes, starting
from climate.manager.announcements import News, announce, tell_nodes_of
from climate.manager.batch import Batch, Result
from climate.manager.beginning import begin
from climate.manager.calling import call_all
from climate.manager.claims import Claim, Seen, Task, Work, close_all, give_way, look_again
from climate.manager.failures import fail
from climate.manager.farewells import note_end
from climate.manager.leases import remove
from climate.manager.outcomes import Done
from climate.manager.pace import Pace
from climate.manager.runtime import Runtime
from climate.manager.telling import events_with_done
from climate.observability import log_context

LOG = logging.getLogger(__name__)

# What the cloud is still at is looked at again so soon.
_SHORTLY = timedelta(seconds=1)
# Who calls for several that should be quickly done leaves the rest to others after so many seconds.
_ENOUGH = 1.0

T = TypeVar("T")
R = TypeVar("R")


def run(runtime: Runtime, batch: Batch, pace: Pace) -> None:
    """Run claimed events to their outcomes, good or bad, one call after the other."""
    batch.begin(_together(runtime, batch.claims, begin))
    began, calls, took = runtime.clock.elapsed(), 0, 0.0
    while took < _ENOUGH and (task := batch.next()) is not None:
        _call(runtime, batch, task)
        calls, took = calls + 1, runtime.clock.elapsed() - began
    if calls:
        pace.note(batch.types, took, calls)
    try:
        hand_back(runtime, batch.rest())
    finally:
        settle(runtime, batch.results())


def _call(runtime: Runtime, batch: Batch, task: Task) -> None:
    claim, work = task
    now = runtime.clock.now()
    if work.event.is_untried:
        runtime.metrics.tried(work.event.kind, now - work.lease.due(work.event, now))
    with log_context.about(claim.lease_id, claim.event_id):
        if work.event.kind == RELEASE:
            holds.expire(runtime, claim, work.lease)
        else:
            batch.add(Result(task, call_all(runtime, claim, work)))


def settle(runtime: Runtime, results: Sequence[Result]) -> None:
    """Store what became of tasks: those that succeeded together, each of the others alone."""
    judged = [(result, _judge(runtime, result)) for result in results]
    done = [_Done(*result.task, how) for result, how in judged if isinstance(how, Done)]
    busy = _together(runtime, done, _succeed) if done else []
    for one in busy:  # and waited for
        _together(runtime, [one], _succeed)
    for _, how in judged:
        if not isinstance(how, Done):
            runtime.database.write(how)


def hand_back(runtime: Runtime, tasks: Sequence[Task]) -> None:
    """Let somebody else do what nobody called for yet."""

    def work(session: Session) -> None:
        for task in tasks:
            give_way(session, task.claim)

    if tasks:
        runtime.database.write(work)


def _judge(runtime: Runtime, result: Result) -> Done | Callable[[Session], None]:
    """Return what was done if that is a success, else how to store what it is instead."""
    (claim, work), outcome = result
    if not (outcome.waiting or outcome.failed or claim.fencing_token.blocked_a_change):
        return Done(outcome.details, {})
    now = runtime.clock.now()
    lost = _lost(runtime, work, {**outcome.waiting, **outcome.failed})
    if now - work.lease.tried_since(work.event, now) > PATIENCE:
        outcome.failed.update(outcome.waiting)
    if (
        claim.fencing_token.blocked_a_change
    ):  # whatever the plugin made of that: some of it was not done
        runtime.metrics.event(work.event.kind, "retried")
        return lambda session: give_way(session, claim)
    if outcome.failed and not lost:
        return lambda session: fail(runtime, session, claim, work, outcome.failed)
    if outcome.waiting and not lost:
        noted = {"updated_at": now} if work.event.is_untried else {}
        return lambda session: give_way(session, claim, run_at=now + _SHORTLY, **noted)
    return Done(outcome.details, lost)


def _lost(runtime: Runtime, work: Work, undone: Mapping[str, str]) -> Mapping[str, str]:
    """Return why which stacks could not be ended, if nothing else is left to be done."""
    patience = runtime.settings.stack_patience
    given_up = acting.given_up(work, undone, runtime.clock.now(), patience)
    return {id_: undone[id_] for id_ in given_up}


def _together(
    runtime: Runtime,
    items: Sequence[T],
    work: Callable[[Runtime, Session, Sequence[T]], list[R]],
) -> list[R]:
    """Do work on many in one transaction; if one of them spoils it, on each in one of its own."""
    try:
        return runtime.database.write(lambda session: work(runtime, session, items))
    except Exception as error:
        if len(items) == 1 or is_unavailable(error):
            raise
        LOG.warning("%s events are taken one by one, as together they fail: %s", len(items), error)
    found: list[R] = []
    for item in items:
        try:
            found += _together(runtime, [item], work)
        except Exception:
            LOG.exception("an event was not finished, its claim will expire")
    return found


class _Done(NamedTuple):
    """A claim whose action succeeded, on what, and what came of it."""

    claim: Claim
    work: Work
    done: Done


def _succeed(runtime: Runtime, session: Session, done: Sequence[_Done]) -> list[_Done]:
    """Store that actions are done; return those whose lease is locked by somebody else.

    Alone, an action is stored though it has to wait for that.
    """
    now, known = runtime.clock.now(), {one.claim.event_id: one for one in done}
    seen, unseen = look_again(session, [Task(one.claim, one.work) for one in done])
    close_all(session, [one.claim for one in seen], now, EventStatus.DONE)
    ended = [_Ended(one, *known[one.claim.event_id][1:], now) for one in seen]
    progress.advance(session, [(one.before, one.after) for one in ended])
    for one in ended:
        _let_go(runtime, session, one.before, one.left, now)
    events.drop(session, [id_ for one in ended for id_ in one.needless])
    for one in ended:
        if one.kind == START:
            starting.note_start(runtime, session, one.before)
        if one.kind == END:
            note_end(runtime, session, one.before, now)
    announce(session, [one.news for one in ended], now)
    for one in ended:
        _tell_nodes(runtime, session, one, now)
        if one.kind == END and one.after.status is LeaseStatus.DELETING:
            remove(session, leases.get(session, one.after.id), now, runtime.settings)
    on_commit(session, lambda: _count(runtime, ended))
    return [known[claim.event_id] for claim in unseen] if len(done) > 1 else []


class _Ended:
    """An action that succeeded: what its lease was before, and what it is after."""

    def __init__(self, seen: Seen, work: Work, done: Done, now: datetime) -> None:
        self.kind, self.work, self.before = work.event.kind, work, seen.lease
        self.late = now - work.lease.due(work.event, now)
        self.needless = _needless(seen.lease, now) if self.kind == END else []
        self.left = [id_ for id_ in done.details if work.is_leaving(id_)]
        kept = [event for event in seen.lease.events if event.id not in self.needless]
        events = events_with_done(kept, seen.event, now)
        self.after = outcomes.after(work, seen.lease, events, done, now)
        error = {"error": "; ".join(done.lost.values())} if done.lost else {}
        self.news = News(self.kind, self.after, error)


def _needless(lease: Lease, now: datetime) -> list[str]:
    """Return what a lease that is over will not need: a start in retry, a snapshot, a notice.

    But what users want to be told, and is due, they are told.
    """
    return [
        event.id
        for event in lease.events
        if event.status is EventStatus.UNDONE and (event.kind in OWN_KINDS or event.due_at > now)
    ]


def _tell_nodes(runtime: Runtime, session: Session, ended: _Ended, now: datetime) -> None:
    settings, given = runtime.settings.provisioning, ended.work.resources
    tell_nodes_of(settings, session, ended.kind, ended.before, given, now)


def _count(runtime: Runtime, ended: Sequence[_Ended]) -> None:
    for one in ended:
        runtime.metrics.done(one.kind, one.late)


def _let_go(
    runtime: Runtime, session: Session, lease: Lease, reservation_ids: Sequence[str], now: datetime
) -> None:
    """Leave what reservations had to its cleaning; that they had it still counts."""
    if reservation_ids:
        if runtime.settings.limits.enabled:
            keep_past_use(session, lease, reservation_ids, now)
        allocations.detach(session, reservation_ids, now + runtime.settings.cleaning_time)
