"""Calling the plugins for the reservations of an event, under the claim's permit."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from climate.core.lease import Lease, Reservation
from climate.core.schedule import BEFORE_END, START, UPDATE
from climate.manager.claims import Claim, Work
from climate.manager.events import acting
from climate.manager.process.runtime import Runtime
from climate.plugins.base import NotYet, ResourcePlugin
from climate.plugins.fence import Fenced

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the plugins said, by reservation: what to tell users, why it failed, why not yet."""

    details: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)


def call_all(runtime: Runtime, claim: Claim, work: Work) -> Outcome:
    """Call the plugin for one reservation after the other, as long as the claim permits it."""
    outcome, patience = Outcome(), runtime.settings.stack_patience
    now = runtime.clock.now()
    for reservation in acting.ordered(work, now, patience):
        undone = {**outcome.failed, **outcome.waiting}
        if why := acting.held_up(work, reservation, undone, now, patience):
            outcome.waiting[reservation.id] = why
            continue
        try:
            with claim.calling(work, reservation, runtime.clock.elapsed()):
                lease = acting.seen_by(work, outcome.details)
                outcome.details[reservation.id] = _act(runtime, work, lease, reservation)
        except NotYet as reason:
            outcome.waiting[reservation.id] = str(reason)
        except Fenced as fenced:
            LOG.warning("%s of lease %s: %s", work.event.kind, work.lease.id, fenced)
            break
        except Exception as error:  # noqa: BLE001 - whatever a plugin raises is a failed attempt
            outcome.failed[reservation.id] = f"{type(error).__name__}: {error}"
            _log(work, error, known=claim.attempt > runtime.settings.max_retries + 1)
    return outcome


def _log(work: Work, error: Exception, *, known: bool) -> None:
    """Log a failure: in a line if it was logged often before, as it will be tried for ever."""
    what = "event %s of lease %s failed: %s"
    LOG.error(what, work.event.kind, work.lease.id, error, exc_info=None if known else error)


def _act(runtime: Runtime, work: Work, lease: Lease, reservation: Reservation) -> Mapping[str, Any]:
    """Call the plugin for one reservation, and measure that. No transaction is open."""
    plugin = runtime.plugin(reservation.resource_type)
    with runtime.metrics.call(reservation.resource_type, work.event.kind, NotYet):
        return _call(plugin, work, lease, reservation)


def _call(
    plugin: ResourcePlugin, work: Work, lease: Lease, reservation: Reservation
) -> Mapping[str, Any]:
    given = work.resources[reservation.id]
    if work.is_leaving(reservation.id):
        plugin.end(lease, reservation, given)
        return reservation.details
    if work.event.kind in {START, UPDATE}:
        return plugin.start(lease, reservation, given)
    if work.event.kind == BEFORE_END:
        plugin.before_end(lease, reservation, given)
    else:
        plugin.end(lease, reservation, given)
    return reservation.details
