"""Whether the hosts of a lease were ready in time, and if not, whether there was time."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from climate.core.provisioning.preparation import Preparation, PreparationState
from climate.core.provisioning.readiness import Outcome, outcomes

START = datetime(2030, 1, 15, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
PLANNED = Preparation(
    id="1",
    resource_id=1,
    node="sim-1",
    hardware="gpu",
    lease_id="lease",
    reservation_id="reservation",
    progress=PreparationState.READY,
    wanted_at=START - HOUR,
    needed_at=START,
    lead=3600,
    ready_at=START,
)
LATE = replace(PLANNED, ready_at=START + HOUR)


def outcome(*tasks: Preparation) -> Outcome:
    return outcomes(tasks, START)["gpu"]


def test_a_lease_is_late_if_one_host_is_late_that_had_time() -> None:
    assert outcome(PLANNED) is Outcome.READY
    assert outcome(PLANNED, LATE) is Outcome.LATE


def test_a_lease_that_was_made_too_late_is_short_notice() -> None:
    assert outcome(replace(LATE, wanted_at=START - HOUR / 2)) is Outcome.SHORT_NOTICE


def test_a_lease_that_is_made_for_now_is_short_notice_though_its_start_is_rounded_down() -> None:
    now = START + timedelta(seconds=59)
    assert outcome(replace(LATE, needed_at=now, wanted_at=now)) is Outcome.SHORT_NOTICE


def test_a_replacement_long_after_the_start_does_not_excuse_the_delay() -> None:
    later = START + HOUR
    replacement = replace(LATE, needed_at=later, wanted_at=later, ready_at=later + HOUR)
    assert outcome(LATE, replacement) is Outcome.LATE
