"""Periodic timers run whatever happens to the machine's wall clock."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.schedulers import base
from apscheduler.triggers import interval

from climate.clock import SystemClock
from climate.manager.process import timer as timers
from climate.manager.process.timer import Timer


@pytest.mark.parametrize("step", [timedelta(hours=-1), timedelta(hours=1)])
def test_a_timer_keeps_firing_when_the_wall_clock_is_set(
    step: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a step back by an hour, APScheduler alone would be silent for an hour."""
    offset = timedelta()

    class Wall(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + offset

    for module in (base, interval):
        monkeypatch.setattr(module, "datetime", Wall)
    monkeypatch.setattr(timers, "_wall", lambda: Wall.now(UTC))
    monkeypatch.setattr(timers, "_COMPARE_INTERVAL", 0.05)
    fired = threading.Event()
    timer = Timer(SystemClock())
    timer.every(0.1, fired.set, "often")
    timer.start()
    try:
        assert fired.wait(60)
        offset = step
        for _ in range(2):
            fired.clear()
            assert fired.wait(60)
    finally:
        timer.stop()
