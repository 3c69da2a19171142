"""Heartbeats of managers, and the progress of their loops."""

from datetime import timedelta
from functools import partial

from climate.db import managers
from climate.db.managers import KEPT
from climate.manager.process.heartbeat import ManagerHeartbeat, find_beats
from climate.manager.process.periodic_task import PeriodicTask
from tests.support.process import eventually
from tests.support.rows import dump
from tests.support.service import Story


def test_a_row_shows_the_last_heartbeat_until_the_manager_stops(story_everywhere: Story) -> None:
    story = story_everywhere
    first, second = (ManagerHeartbeat(story.runtime.store, f"m{n}", list) for n in (1, 2))
    started = story.clock.now()
    first.beat()
    story.clock.advance(5)
    first.beat()
    second.beat()
    beats = find_beats(story.runtime.store)
    assert [(beat.id, beat.started_at, beat.beat_at) for beat in beats.alive] == [
        ("m1", started, story.clock.now()),
        ("m2", story.clock.now(), story.clock.now()),
    ]
    second.stop()
    story.clock.advance(KEPT.total_seconds())
    assert find_beats(story.runtime.store).last == started + timedelta(seconds=5)
    second.beat()
    assert [row["id"] for row in dump(story.runtime.database)["managers"]] == ["m1", "m2"]
    story.clock.advance(1)
    second.beat()
    assert [row["id"] for row in dump(story.runtime.database)["managers"]] == ["m2"]


def test_a_trial_write_leaves_no_row(story_everywhere: Story) -> None:
    database, now = story_everywhere.runtime.database, story_everywhere.clock.now()
    database.write(lambda session: managers.try_write(session, now))
    assert dump(database)["managers"] == []


def test_a_loop_that_fails_makes_no_progress() -> None:
    runs: list[str] = []

    def fail() -> None:
        runs.append("error")
        raise RuntimeError

    def report_failure() -> bool:
        runs.append("false")
        return False

    def ran_twice(word: str) -> bool:
        return runs.count(word) > 1

    for step, word in (
        (fail, "error"),
        (report_failure, "false"),
        (lambda: runs.append("ok"), "ok"),
    ):
        task = PeriodicTask("loop", step, lambda: None, interval=0.0)
        (progress,) = task.progress
        created = progress.done_at
        task.start()
        eventually(partial(ran_twice, word), "two runs")
        task.stop()
        assert (progress.done_at > created) == (word == "ok")
