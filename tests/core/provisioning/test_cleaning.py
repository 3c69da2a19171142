"""Which reports of the cloud end the measurement of a cleaning, and with which duration."""

from datetime import datetime, timedelta

import pytest

from climate.core.provisioning.cleaning import Cleaning, NodeState, Report, Unmeasured, judge
from tests.conftest import NOON


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("state", "since", "seen", "result"),
    [
        (NodeState.IN_USE, -60, None, Unmeasured.WAIT),  # its server is not deleted yet
        (NodeState.FAILED, -60, None, Unmeasured.WAIT),
        (NodeState.CLEANING, 1, None, Unmeasured.SEEN),
        (NodeState.AVAILABLE, 20, 19, 1200.0),
        (NodeState.AVAILABLE, 20, None, 1200.0),  # no manager ran meanwhile
        (NodeState.AVAILABLE, -60, None, Unmeasured.DISCARD),  # it had no server
        (NodeState.IN_USE, 25, 19, 1140.0),  # the next server came before the next report
        (NodeState.IN_USE, 25, None, Unmeasured.DISCARD),
        (NodeState.FAILED, 20, 19, Unmeasured.DISCARD),
        (None, None, None, Unmeasured.WAIT),
    ],
)
def test_a_report_decides_on_a_measurement(
    state: NodeState | None, since: float, seen: float | None, result: float | Unmeasured
) -> None:
    cleaning = Cleaning(
        resource_id=1,
        lease_id="a",
        resource_class="small",
        began_at=NOON,
        seen_at=None if seen is None else at(seen),
    )
    report = Report(state, at(since)) if state else None
    assert judge(cleaning, report, at(30)) == result
    if result in {Unmeasured.WAIT, Unmeasured.SEEN}:
        assert judge(cleaning, report, at(3 * 24 * 60)) is Unmeasured.DISCARD
