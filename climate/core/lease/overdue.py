"""Overdue events of leases, and why a manager has not run them yet. Pure."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from climate.core.lease.lifecycle import EventStatus


class Cause(StrEnum):
    """The reason why an overdue event has not run yet, as a code for programs."""

    RUNNING = "running"
    CLAIM_LOST = "claim_lost"
    NO_MANAGER = "no_manager"
    OTHER_LEASE = "other_lease"
    OTHER_EVENT = "other_event"
    HOSTS = "hosts"
    RETRY = "retry"
    CLOUD = "cloud"
    QUEUED = "queued"


class Blocker(NamedTuple):
    """A lease that uses ``resource`` and must end before an event of another lease can run."""

    lease_id: str
    lease_name: str
    resource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OverdueEvent:
    """An unfinished event of a lease, such as its start, whose due time has passed.

    ``run_at`` is the earliest time of the next attempt. ``waits_for_hosts`` means that the event is
    a start that waits until provisioners have prepared the hosts. ``blocked_by`` is another lease
    that must end first. ``sibling`` is the kind of another event of the same lease that must run
    first. ``lease_id`` is None if the lease is already deleted, and only this event is left.
    """

    id: str
    lease_id: str | None
    lease_name: str | None
    project_id: str | None
    kind: str
    status: EventStatus
    due_at: datetime
    run_at: datetime
    attempt: int
    owner: str | None
    claimed_until: datetime | None
    last_error: str | None
    waits_for_hosts: bool
    blocked_by: Blocker | None = None
    sibling: str | None = None


def reason(event: OverdueEvent, alive: Collection[str], now: datetime) -> tuple[Cause, str]:
    """Return why ``event`` has not run yet, as a code and as an English sentence.

    ``alive`` contains the ids of the managers with a recent heartbeat.
    """
    if event.status is EventStatus.IN_PROGRESS:
        return _claimed(event, alive)
    if not alive:
        return Cause.NO_MANAGER, "No manager runs."
    return _blocked(event) or _waiting(event, now)


def _blocked(event: OverdueEvent) -> tuple[Cause, str] | None:
    if event.blocked_by is not None:
        _, name, resource = event.blocked_by
        return Cause.OTHER_LEASE, f"It waits for the end of the lease {name} on {resource}."
    if event.sibling is not None:
        return Cause.OTHER_EVENT, f"It waits for the event {event.sibling} of the same lease."
    if event.waits_for_hosts:
        return Cause.HOSTS, "It waits until the hosts of the lease are ready."
    return None


def _waiting(event: OverdueEvent, now: datetime) -> tuple[Cause, str]:
    is_later = event.run_at > now
    if event.attempt:
        pause = f" after {_time(event.run_at)}" if is_later else ""
        return Cause.RETRY, f"Failed attempts: {event.attempt}. A manager retries it{pause}."
    if is_later:
        text = f"The cloud has not finished yet. A manager checks again at {_time(event.run_at)}."
        return Cause.CLOUD, text
    return Cause.QUEUED, "It waits for a free worker of a manager."


def _claimed(event: OverdueEvent, alive: Collection[str]) -> tuple[Cause, str]:
    if event.owner in alive:
        return Cause.RUNNING, f"The manager {event.owner} runs it."
    until = "" if event.claimed_until is None else f" after {_time(event.claimed_until)}"
    text = f"The manager {event.owner} claimed it and has no heartbeat. Another takes over{until}."
    return Cause.CLAIM_LOST, text


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
