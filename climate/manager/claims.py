"""Claims: a manager's exclusive, expiring right to run an event.

A claim is an owner (a manager's name) and an attempt number in the event's row. A manager renews
its claims while it runs the events. It stores an outcome only if the row still has this owner and
attempt, so a manager that lost its claim stores nothing. If an owner stops renewing a claim,
another manager *reclaims* the event: it releases the claim.

Each claim has a fencing token in memory. Plug-ins may change the cloud for the claim only while the
token is valid. The token expires shortly before another manager can reclaim the event.

Reclaiming compares no wall clocks. Every manager measures the time-out on its own monotonic clock.
The owner starts to measure before it writes the claim or a renewal. Another manager starts to
measure after it has read this claim or renewal. So the token of the owner always expires first.
"""

import logging
import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from climate.core.backoff import pause_before
from climate.core.lease.lifecycle import EventStatus
from climate.core.lease.model import LEAVING, Event, Granted, Lease, Reservation
from climate.core.lease.schedule import END, START, UPDATE
from climate.core.record import record
from climate.db.engine.database import is_retried
from climate.db.events import queue as event_queue
from climate.db.events.queue import Held
from climate.db.leases import leases
from climate.manager.process.runtime import Runtime, Store
from climate.plugins import fencing
from climate.plugins.fencing import FencingToken

LOG = logging.getLogger(__name__)


@record(frozen=True, slots=True)
class Work:
    """A claimed event, its lease, and the resources on which the event acts.

    ``resources`` maps the id of each reservation to its resources. A transaction begins the work:
    for example, it sets the lease's status to STARTING. ``lease`` is the lease before this
    transaction. ``begun`` is the lease as this transaction stored it. ``begun`` is None in two
    cases:

    - The transaction also changed the lease's events.
    - The event removes a held lease: a new lease that was not confirmed in time.

    With ``is_ahead``, a start only creates resources, because the lease starts later.
    """

    event: Event
    lease: Lease
    resources: Mapping[str, tuple[Granted, ...]]
    begun: Lease | None = None
    is_ahead: bool = False

    @property
    def reservations(self) -> list[Reservation]:
        """The reservations on which the event acts: those with an entry in ``resources``."""
        return [r for r in self.lease.reservations if r.id in self.resources]

    def is_leaving(self, reservation_id: str) -> bool:
        """Return whether the reservation was removed, so that this event reclaims its resources."""
        leaving = {r.id for r in self.lease.reservations if LEAVING in r.details}
        return self.event.kind in {START, UPDATE, END} and reservation_id in leaving


@record(frozen=True, slots=True)
class Call:
    """A running plug-in call for one reservation.

    ``since`` is when the call began, in seconds of the monotonic clock ``clock.elapsed``.
    """

    work: Work
    reservation_id: str
    since: float


@record(frozen=True, slots=True)
class Claim:
    """A manager's claim on an event, valid while the event's row has this owner and attempt.

    If the event is a finalizer (a task that outlives its lease), ``lease_id`` is None. ``types``
    are the resource types on which the event acts; if it is empty, the event calls no plug-in.
    While ``fencing_token`` is valid, plug-ins may change the cloud for this claim. ``calls``
    contains at most one item: the running plug-in call.
    """

    event_id: str
    lease_id: str | None
    owner: str
    attempt: int
    project_id: str | None = None
    types: frozenset[str] = frozenset()
    fencing_token: FencingToken = field(default_factory=FencingToken, compare=False)
    calls: list[Call] = field(default_factory=list, compare=False)

    def call_since_before(self, moment: float) -> Call | None:
        """Return the running plug-in call if it began before ``moment``, else None.

        ``moment`` is in seconds of the monotonic clock ``clock.elapsed``. The result is also None
        if no call is running.
        """
        return next((call for call in list(self.calls) if call.since < moment), None)

    @contextmanager
    def calling(self, work: Work, reservation: Reservation, since: float) -> Iterator[None]:
        """Return a context in which to make one plug-in call, for one reservation of ``work``.

        ``since`` is when the call begins, in seconds of the monotonic clock ``clock.elapsed``. In
        the context, ``calls`` contains the call, and climate checks the fencing token before each
        change of the cloud. Raises Fenced if the token has expired.
        """
        self.fencing_token.check()
        self.calls.append(Call(work, reservation.id, since))
        try:
            with fencing.fenced(self.fencing_token):
                yield
        finally:
            self.calls.clear()


class Seen(NamedTuple):
    """A claim that this manager still holds, the claimed event, and the locked lease."""

    claim: Claim
    lease: Lease
    event: Event


class Task(NamedTuple):
    """A claim on an event, and the work that the event requires."""

    claim: Claim
    work: Work


@dataclass(frozen=True, slots=True)
class Result:
    """What the plug-in calls of a task returned, before it is stored.

    The keys of all mappings are reservation ids. ``details`` contains the details that plug-ins
    returned, and ``failed`` the errors. ``waiting`` contains the reasons why reservations are not
    done yet although no call failed.
    """

    task: Task
    details: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)

    @property
    def undone(self) -> dict[str, str]:
        """The reasons why reservations failed or must wait, by reservation id."""
        return {**self.failed, **self.waiting}


class Batch:
    """The claimed events that one worker thread runs, and the progress of the worker. Thread-safe.

    All claims are on the same resource types. A task is a claim with its work. A result is the
    outcome of a task's plug-in calls, before the worker stores it.

    If a plug-in call is unexpectedly slow, another thread relieves the worker. That thread requeues
    the tasks that are not begun, and stores the results that the worker has not stored.
    """

    def __init__(self, claims: Sequence[Claim]) -> None:
        """Begin with ``claims``, at least one, and without tasks or results."""
        self.types = claims[0].types
        self._claims = {claim.event_id: claim for claim in claims}
        self._tasks: deque[Task] = deque()
        self._results: list[Result] = []
        self._lock = threading.Lock()

    @property
    def claims(self) -> list[Claim]:
        """The claims whose events this worker must still finish."""
        with self._lock:
            return list(self._claims.values())

    @property
    def projects(self) -> set[str | None]:
        """The project ids of the claims whose events this worker must still finish."""
        return {claim.project_id for claim in self.claims}

    def begin(self, tasks: Sequence[Task]) -> None:
        """Set the tasks that need plug-in calls, and forget all claims without a task.

        The caller must have finished or requeued the events of the forgotten claims.
        """
        with self._lock:
            self._claims = {task.claim.event_id: task.claim for task in tasks}
            self._tasks = deque(tasks)

    def next(self) -> Task | None:
        """Remove and return the next task, for which to call plug-ins; None if no task is left."""
        with self._lock:
            return self._tasks.popleft() if self._tasks else None

    def add(self, result: Result) -> None:
        """Add the result of a task. The worker later stores several results together."""
        with self._lock:
            self._results.append(result)

    def take_results(self) -> list[Result]:
        """Remove and return all results; the caller must store them."""
        with self._lock:
            results, self._results = self._results, []
            return results

    def relieve(self) -> tuple[list[Task], list[Result]]:
        """Remove and return the work that waits for a slow plug-in call: (tasks, results).

        The tasks are those for which no plug-in was called yet, and the results are not stored yet.
        The batch forgets the claims of both, so the caller must requeue the tasks and store the
        results.
        """
        tasks, results = self.take_tasks(), self.take_results()
        with self._lock:
            self._forget([result.task.claim for result in results])
        return tasks, results

    def take_tasks(self) -> list[Task]:
        """Remove and return the tasks for which no plug-in was called yet.

        The batch forgets the claims of these tasks.
        """
        with self._lock:
            tasks, self._tasks = list(self._tasks), deque()
            self._forget([task.claim for task in tasks])
            return tasks

    def discard(self, claim: Claim) -> None:
        """Forget a claim, because the worker pool no longer waits for its plug-in call."""
        with self._lock:
            self._forget([claim])

    def call_since_before(self, moment: float) -> tuple[Claim, Call] | None:
        """Return the running plug-in call with its claim if it began before ``moment``, else None.

        ``moment`` is in seconds of the monotonic clock ``clock.elapsed``.
        """
        calls = ((claim, claim.call_since_before(moment)) for claim in self.claims)
        return next(((claim, call) for claim, call in calls if call is not None), None)

    def _forget(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self._claims.pop(claim.event_id, None)


def lease_of(session: Session, claim: Claim) -> Lease | None:
    """Lock and return the lease of a claim; None if the claim is lost or the lease is deleted."""
    seen, _ = lock_leases(session, [claim], wait=True)
    return seen[0].lease if seen else None


def lock_leases(
    session: Session, claims: Sequence[Claim], *, wait: bool
) -> tuple[list[Seen], list[Claim]]:
    """Lock the leases of claims, and check that this manager still holds the claims.

    Returns two lists. The first contains the claims that this manager still holds, with their
    events and locked leases. The second contains the claims whose lease could not be locked: the
    lease no longer exists, or another transaction has locked it and ``wait`` is false. Claims that
    this manager has lost are in neither list.

    This manager may lose a claim after the check. So the later statement that stores the outcome of
    the event checks owner and attempt again.
    """
    ids = {claim.lease_id for claim in claims if claim.lease_id is not None}
    locked = leases.find_some(session, ids, lock=True, patient=wait)
    seen, unlocked = [], []
    for claim in claims:
        lease = locked.get(claim.lease_id or "")
        event = _claimed_event(lease, claim) if lease is not None else None
        if lease is None:
            unlocked.append(claim)
        elif event is None:
            LOG.warning(
                "lost the claim of event %s of lease %s: another manager runs the event",
                claim.event_id,
                claim.lease_id,
            )
        else:
            seen.append(Seen(claim, lease, event))
    return seen, unlocked


def relock_leases(session: Session, tasks: Sequence[Task]) -> tuple[list[Seen], list[Claim]]:
    """Lock the leases of tasks after the plug-in calls; return the two lists of ``lock_leases``.

    If the transaction runs for the first time, the function checks only the claims whose lease has
    changed since the work began. If an unchecked claim is lost, ``close_all`` raises LostRace
    later, and the transaction runs again. In that second run, the function checks all claims.
    """
    wait = len(tasks) == 1
    if is_retried(session):
        return lock_leases(session, [task.claim for task in tasks], wait=wait)
    begun = [work.begun for _, work in tasks if work.begun is not None]
    unchanged = leases.lock_unchanged(session, begun, patient=wait)
    confirmed, others = [], []
    for claim, work in tasks:
        if work.begun is not None and work.begun.id in unchanged:
            confirmed.append(Seen(claim, work.begun, work.event))
        else:
            others.append(claim)
    seen, unlocked = lock_leases(session, others, wait=wait) if others else ([], [])
    return confirmed + seen, unlocked


def _claimed_event(lease: Lease, claim: Claim) -> Event | None:
    """Return the event of a claim; None if the event no longer has this owner and attempt."""
    claimed = (claim.event_id, EventStatus.IN_PROGRESS, claim.owner, claim.attempt)
    matching = (e for e in lease.events if (e.id, e.status, e.owner, e.attempt) == claimed)
    return next(matching, None)


def close_all(
    session: Session, claims: Sequence[Claim], now: datetime, status: EventStatus
) -> None:
    """Store the new ``status`` of events that one manager has claimed.

    Raises LostRace if the manager has lost one of the claims.
    """
    if claims:
        attempts = [(claim.event_id, claim.attempt) for claim in claims]
        event_queue.finish_all(session, claims[0].owner, attempts, now, status.value)


def close(
    session: Session, claim: Claim, now: datetime, status: EventStatus, **outcome: Any
) -> bool:
    """Store the new ``status`` of a claimed event; return whether this manager still had the claim.

    If the manager had lost the claim, nothing is stored. ``outcome`` contains the new values of
    other columns of the event (``last_error``, ``run_at``).
    """
    return event_queue.finish(
        session, claim.event_id, claim.owner, claim.attempt, now, status=status.value, **outcome
    )


def retry_later(runtime: Runtime, claim: Claim, error: str) -> None:
    """Store that an attempt of an event failed, with the error and the time of the next attempt.

    The pause before the next attempt grows with the number of attempts. The number of attempts is
    not limited. The function opens a transaction, and stores nothing if this manager has lost the
    claim.
    """
    now = runtime.clock.now()
    pause = pause_before(claim.attempt, runtime.settings.max_retries, runtime.rng)
    retry = {"last_error": error, "run_at": now + timedelta(seconds=pause)}
    runtime.database.write(lambda session: close(session, claim, now, EventStatus.UNDONE, **retry))


def requeue(session: Session, claim: Claim, **again: Any) -> None:
    """Release a claim and do not count the attempt, so that any manager can claim the event.

    Does nothing if this manager has lost the claim. ``again`` contains the new values of other
    columns of the event (``run_at``, ``updated_at``, ``last_error``).
    """
    event_queue.requeue(session, claim.event_id, claim.owner, claim.attempt, **again)


def requeue_all(session: Session, claims: Sequence[Claim], **again: datetime) -> None:
    """Release the claims of one manager as ``requeue`` does, with one statement for all."""
    if claims:
        attempts = [(claim.event_id, claim.attempt) for claim in claims]
        event_queue.requeue_all(session, claims[0].owner, attempts, **again)


def remove(session: Session, claim: Claim) -> None:
    """Delete a finished event that needs no record.

    Does nothing if this manager has lost its claim on the event.
    """
    if event_queue.is_mine(session, claim.event_id, claim.owner, claim.attempt):
        event_queue.remove(session, [claim.event_id])


class ClaimKeeper:
    """Renews the claims of one manager, and reclaims expired claims of other managers.

    To reclaim is to release a claim that its owner no longer renews, so that any manager can claim
    the event. A claim expires ``timeout`` after its last renewal.
    """

    def __init__(self, store: Store, owner: str, timeout: timedelta) -> None:
        self._store, self._owner, self._timeout = store, owner, timeout
        self._observed: dict[str, tuple[Held, float]] = {}

    def expires(self) -> float:
        """Return when a claim made now would expire, in seconds of ``clock.elapsed``."""
        return self._store.clock.elapsed() + self._timeout.total_seconds()

    def renew(self, claims: Mapping[str, Claim]) -> None:
        """Renew ``claims``, a mapping by event id, and extend their fencing tokens.

        A claim that this manager has lost is not renewed. The fencing token of that claim then
        expires.
        """
        if not claims:
            return
        expires = self.expires()
        stored = self._store.clock.now() + self._timeout
        renewed = self._store.database.write(
            lambda session: event_queue.extend(session, self._owner, list(claims), stored)
        )
        for id_, claim in claims.items():
            if renewed.get(id_) == claim.attempt:
                claim.fencing_token.extend(expires)

    def reclaim(self, own: Collection[str]) -> int:
        """Release the claims that other managers have stopped renewing; return how many.

        A claim has expired if this manager has seen no renewal of it during the time-out. The
        number of attempts of each event still includes the interrupted attempt. ``own`` are the ids
        of the events that this manager runs itself; the function does not release their claims.
        """
        with self._store.database.read() as session:
            claimed = event_queue.claimed(session)
        now = self._store.clock.elapsed()
        observed = {id_: (held, now) for id_, held in claimed.items() if id_ not in own}
        for id_, (held, _) in observed.items():
            if (previous := self._observed.get(id_)) is not None and previous[0] == held:
                observed[id_] = previous
        self._observed = observed
        limit = now - self._timeout.total_seconds()
        expired = {id_: held for id_, (held, since) in observed.items() if since <= limit}
        if not expired:
            return 0
        count = self._store.database.write(lambda session: event_queue.reclaim(session, expired))
        if count:
            LOG.warning(
                "reclaimed %s event(s) from managers that stopped renewing their claims", count
            )
        return count
