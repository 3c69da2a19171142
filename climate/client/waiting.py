"""Waits for a lease to start or to end, and says what it waits for."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from climate.client.errors import (
    ClientError,
    Forbidden,
    NotFound,
    Refused,
    TemporarilyUnavailable,
    WaitFailed,
    WaitTimedOut,
)
from climate.client.models import Lease, LeaseReadiness, Notification, Waiting
from climate.client.transport import Transport, patiently

T = TypeVar("T")
# Seconds of one long poll, and of the pause where the service has no place for one.
_POLL, _PAUSE = 10, 2.0
# A wait can end so many seconds after its time limit if the service is away.
_LONGEST_PAUSE = 5.0
_START, _END = "lease.event.start_lease", "lease.event.end_lease"
_NOT_STARTED = frozenset({"CREATING", "WAITING", "PENDING"})
_OVER = frozenset({"TERMINATED", "DELETING"})


@dataclass(frozen=True, slots=True)
class Progress:
    """What a wait has seen last, and what it waits for.

    ``lease`` is None if it is deleted, or was not read yet. ``hosts`` names the hosts without which
    the start of the lease waits. ``problem`` is set while the service does not answer.
    """

    lease: Lease | None
    hosts: tuple[str, ...] = ()
    problem: ClientError | None = None

    @property
    def starts_at(self) -> datetime | None:
        """When the lease starts, if it waits for its start; else None."""
        if self.lease is None or self.hosts or self.lease.status == "WAITING":
            return None
        if self.lease.status not in _NOT_STARTED:
            return None
        return self.lease.start

    def __str__(self) -> str:
        """Return what the wait waits for as a phrase, with times in UTC."""
        return self.text(datetime.isoformat)

    def text(self, show: Callable[[datetime], str]) -> str:
        """Return what the wait waits for as a phrase; ``show`` returns a time as text."""
        if self.problem is not None:
            return f"{str(self.problem).rstrip('.')}. Trying again."
        if self.lease is None:
            return "The lease is deleted."
        if self.hosts:
            return f"{self.lease.status}: waits until hosts are ready: {', '.join(self.hosts)}"
        if self.lease.waiting is not None:
            return f"{self.lease.status}: {_place(self.lease.waiting, show)}"
        if self.starts_at is not None:
            return f"{self.lease.status}: starts at {show(self.starts_at)}"
        return self.lease.status


Callback = Callable[[Progress], None]


def _place(place: Waiting, show: Callable[[datetime], str]) -> str:
    where = f"position {place.position} in the wait list"
    if place.held_back == "limit":
        where += ", held back by a limit"
    if place.promised_start is not None:
        return f"{where}, promised start {show(place.promised_start)}"
    if place.expected_start is not None:
        return f"{where}, expected start {show(place.expected_start)}"
    return where


def patiently_until(deadline: float, name: str, read: Callable[[], T]) -> T:
    """Return the result of ``read``; call it again while the service is unavailable.

    Raises WaitTimedOut after ``deadline`` (of the monotonic clock). ``name`` is that of the lease.
    """

    def check(_error: ClientError) -> None:
        if time.monotonic() >= deadline:
            raise WaitTimedOut(f"The time limit is over, and lease {name} could not be read.")

    return patiently(read, longest_pause=_LONGEST_PAUSE, on_retry=check)


class _Leases(Protocol):
    def get(self, lease_id: str) -> Lease: ...
    def readiness(self, lease_id: str) -> LeaseReadiness: ...


class Wait:
    """A wait for one lease.

    ``deadline`` is a time of the monotonic clock; None means no limit. The requests of
    ``transport`` and ``leases`` must end by then.
    """

    def __init__(
        self,
        transport: Transport,
        leases: _Leases,
        lease_id: str,
        deadline: float | None,
        progress: Callback | None,
    ) -> None:
        self._transport = transport
        self._leases = leases
        self._lease_id = lease_id
        self._deadline = deadline
        self._progress = progress
        self._shown: Progress | None = None
        self._after = 0

    def until_active(self) -> Lease:
        """Return the lease when it is active. Raises WaitFailed, WaitTimedOut."""
        for lease in self._states():
            if lease is None or lease.status in _OVER:
                end = "is deleted" if lease is None or lease.status == "DELETING" else "has ended"
                raise WaitFailed(f"Lease {self._lease_id} {end}: it will not start.")
            if lease.status == "ACTIVE":
                return lease
            if lease.status == "ERROR":
                raise WaitFailed(self._failure(lease))
        raise AssertionError("the wait has no end")  # pragma: no cover

    def _failure(self, lease: Lease) -> str:
        if lease.started_at is not None:
            return f"Lease {lease.id} is over, and could not end: {self._reason(_END)}"
        return (
            f"Lease {lease.id} could not start: {self._reason(_START)} climate tries again about"
            " once a minute until the lease ends."
        )

    def until_over(self) -> Lease | None:
        """Return the lease when it has ended; None if it is deleted. Raises WaitTimedOut."""
        for lease in self._states():
            if lease is None or lease.status == "TERMINATED":
                return lease
        raise AssertionError("the wait has no end")  # pragma: no cover

    def _states(self) -> Iterator[Lease | None]:
        """Yield the lease (None: it is deleted), then again after each of its notifications."""
        self._after = self._patiently(self._last_number)
        while True:
            lease = self._patiently(self._read)
            yield lease
            self._check_deadline(lease)
            self._patiently(self._pause)

    def _patiently(self, act: Callable[[], T]) -> T:
        return patiently(act, longest_pause=_LONGEST_PAUSE, on_retry=self._on_retry)

    def _read(self) -> Lease | None:
        try:
            lease = self._leases.get(self._lease_id)
            self._show(Progress(lease, self._waits_for(lease)))
        except NotFound:
            self._show(Progress(None))
            return None
        return lease

    def _waits_for(self, lease: Lease) -> tuple[str, ...]:
        if lease.status not in _NOT_STARTED or lease.start_when != "ready":
            return ()
        return tuple(self._leases.readiness(self._lease_id).waiting_for)

    def _pause(self) -> None:
        """Wait for a notification about the lease, but not longer than some seconds."""
        seconds = _POLL if self._deadline is None else min(_POLL, self._seconds_left())
        query = {"lease_id": self._lease_id, "after": self._after}
        try:
            page = self._transport.wait("/notifications", query=query, seconds=max(1, int(seconds)))
        except (Forbidden, TemporarilyUnavailable):  # no right to read them, or no place
            time.sleep(min(_PAUSE, max(0.0, seconds)))
            return
        self._after = page.member("after", int)

    def _last_number(self) -> int:
        with suppress(Forbidden):
            page = self._transport.send("GET", "/notifications", query={"limit": 0})
            return page.member("after", int)
        return 0

    def _reason(self, event_type: str) -> str:
        """Return why the last event of a type failed, as a sentence."""
        query = {"lease_id": self._lease_id, "event_type": event_type, "limit": 1000}
        with suppress(Refused):
            page = self._transport.send("GET", "/notifications", query=query)
            for notification in reversed(page.member("notifications", list[Notification])):
                if reason := notification.payload.get("error"):
                    return f"{str(reason).rstrip('.')}."
        return "the cloud failed."

    def _show(self, progress: Progress) -> None:
        if self._progress is not None and progress != self._shown:
            self._progress(progress)
        self._shown = progress

    def _on_retry(self, error: ClientError) -> None:
        lease = None if self._shown is None else self._shown.lease
        self._check_deadline(lease)
        self._show(Progress(lease, problem=error))

    def _seconds_left(self) -> float:
        return 0.0 if self._deadline is None else self._deadline - time.monotonic()

    def _check_deadline(self, lease: Lease | None) -> None:
        if self._deadline is not None and self._seconds_left() <= 0:
            state = f"is {lease.status}" if lease else "could not be read"
            raise WaitTimedOut(f"The time limit is over, and lease {self._lease_id} {state}.")
