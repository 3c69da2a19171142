"""Why an overdue event has not run yet."""

import dataclasses
import datetime as dt
from typing import Any

import pytest

from climate.core.lease.lifecycle import EventStatus
from climate.core.lease.overdue import Blocker, Cause, OverdueEvent, reason
from tests.conftest import NOON

LATER = NOON + dt.timedelta(seconds=30)
EVENT = OverdueEvent(
    id="event",
    lease_id="lease",
    lease_name="training",
    project_id="lab",
    kind="start_lease",
    status=EventStatus.UNDONE,
    due_at=NOON,
    run_at=NOON,
    attempt=0,
    owner=None,
    claimed_until=None,
    last_error=None,
    waits_for_hosts=False,
)
CLAIMED = {"status": EventStatus.IN_PROGRESS, "owner": "m1", "claimed_until": LATER}
BLOCKED = {"blocked_by": Blocker("other", "older lease", "sim-1")}


@pytest.mark.parametrize(
    ("changes", "alive", "cause", "part"),
    [
        (CLAIMED, {"m1"}, Cause.RUNNING, "manager m1 runs it"),
        (CLAIMED, {"m2"}, Cause.CLAIM_LOST, "takes over after 2030-01-15T12:00:30Z"),
        (CLAIMED, set(), Cause.CLAIM_LOST, "m1 claimed it and has no heartbeat"),
        ({}, set(), Cause.NO_MANAGER, "No manager runs"),
        (BLOCKED, set(), Cause.NO_MANAGER, "No manager runs"),
        (BLOCKED, {"m1"}, Cause.OTHER_LEASE, "the end of the lease older lease on sim-1"),
        ({"sibling": "end_lease"}, {"m1"}, Cause.OTHER_EVENT, "the event end_lease of the same"),
        ({"waits_for_hosts": True, "run_at": LATER}, {"m1"}, Cause.HOSTS, "hosts of the lease"),
        (
            {"attempt": 2, "run_at": LATER},
            {"m1"},
            Cause.RETRY,
            "it after 2030-01-15T12:00:30Z",
        ),
        ({"attempt": 2}, {"m1"}, Cause.RETRY, "A manager retries it."),
        ({"run_at": LATER}, {"m1"}, Cause.CLOUD, "checks again at 2030-01-15T12:00:30Z"),
        ({}, {"m1"}, Cause.QUEUED, "free worker"),
    ],
)
def test_each_cause_has_a_sentence(
    changes: dict[str, Any], alive: set[str], cause: Cause, part: str
) -> None:
    found, text = reason(dataclasses.replace(EVENT, **changes), alive, NOON)
    assert found is cause
    assert part in text
    assert text.endswith(".")
