"""The calendar in memory: what it knows, when climate refuses from it, and how it is checked."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from climate.core.matching.query import Compare, Everything, Operand
from climate.core.matching.requirement import Requirement
from climate.core.window import Window
from climate.db.resources.feed.port import Changes, Position
from climate.db.resources.feed.rows import CHANGES
from climate.manager.process.calendar_memory import memory as calendar_memory
from climate.manager.process.calendar_memory.memory import CalendarMemory, Use
from climate.manager.process.calendar_memory.view import CalendarView
from tests.conftest import MakeStory
from tests.support.event_queue import add_hosts
from tests.support.service import Story, host_reservation, hosts

HOST = "physical:host"
ANY = Requirement(HOST, 1, 1, Everything())
MINE, OTHER = "me:mine:member", "other:theirs:member"


@pytest.fixture(autouse=True)
def _no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests decide when the copy is loaded and compared, and an answer checked."""
    monkeypatch.setattr(CalendarMemory, "_start", lambda _: None)
    monkeypatch.setattr(calendar_memory, "_CHECKED_SHARE", 0.0)


@pytest.fixture
def story(make_story: MakeStory) -> Story:
    made = make_story(manager__calendar_memory="on")
    made.register(4)
    made.runtime.calendar.load()
    return made


def view(story: Story) -> CalendarView:
    found = story.runtime.calendar.view(HOST)
    assert found is not None
    return found


def free(story: Story, start: int = 60, end: int = 120) -> int:
    """Return how many hosts memory finds free in a window, in minutes from now."""
    now = story.clock.now()
    window = Window(now + timedelta(minutes=start), now + timedelta(minutes=end))
    return view(story).count_free(ANY, window)


def reserve(story: Story, count: int, start: int = 60, end: int = 120, token: str = OTHER) -> str:
    body = story.lease_body(start, end, reservations=[host_reservation(count, count)])
    return str(story.ok("POST", "/v1/leases", body, token=token)["lease"]["id"])


def asking(story: Story, count: int, start: int, end: int) -> dict[str, Any]:
    return story.asking(start, end, reservations=[hosts(count, count)])


def refusal(story: Story, count: int, start: int = 60, end: int = 120) -> dict[str, Any]:
    return story.problem(409, "POST", "/v2/leases", asking(story, count, start, end), token=MINE)


def test_a_process_keeps_the_calendar_from_50_hosts_on(make_story: MakeStory) -> None:
    made = make_story(manager__calendar_memory="auto")
    calendar = made.runtime.calendar
    add_hosts(made.runtime.database, 49)
    calendar._turn()
    assert calendar.view(HOST) is None
    made.register(1)
    calendar._turn()
    assert calendar.view(HOST) is not None


def test_knows_pushed_stats_at_once(story: Story) -> None:
    is_fast = replace(ANY, query=Compare(">", "speed", Operand("9")))
    window = Window(story.clock.now(), story.clock.now() + timedelta(hours=1))
    assert view(story).count_free(is_fast, window) == 0
    items = [{"resource": f"sim-{n}", "generation": 1, "stats": {"speed": n * 5}} for n in (1, 2)]
    story.ok("POST", "/v2/resources/stats", {"items": items})
    assert view(story).count_free(is_fast, window) == 1
    changed = {"resource": "sim-1", "generation": 2, "stats": {"speed": 10}}
    story.ok("POST", "/v2/resources/stats", {"items": [changed]})
    assert view(story).count_free(is_fast, window) == 2


@contextmanager
def questions_of(story: Story, source: str) -> Iterator[None]:
    """Check that the block asks exactly one question that ``source`` answers."""
    before = _answers(story, source)
    yield
    assert _answers(story, source) == before + 1


def _answers(story: Story, source: str) -> float:
    name = "climate_calendar_questions_total"
    return story.runtime.metrics.registry.get_sample_value(name, {"source": source}) or 0.0


def test_a_lease_that_seems_to_fit_does_not_bring_memory_up_to_date(story: Story) -> None:
    reserve(story, 1)
    assert _answers(story, "memory") == _answers(story, "sql") == 0


def test_an_answer_contains_what_was_committed_before_the_question(story: Story) -> None:
    assert free(story) == 4
    lease = reserve(story, 3)
    assert free(story) == 1
    assert free(story, 120, 180) == 4
    story.ok("PUT", f"/v1/leases/{lease}", {"end_date": story.date(90)}, token=OTHER)
    assert free(story, 90, 120) == 4
    story.ok("DELETE", f"/v1/leases/{lease}", token=OTHER)
    assert free(story) == 4


def test_hosts_that_come_change_and_go_are_known(story: Story) -> None:
    gpu = replace(ANY, query=Compare("==", "gpu", Operand("yes")))
    host = story.ok("POST", "/v1/os-hosts", {"name": "sim-5", "gpu": "yes"})["host"]["id"]
    assert free(story) == 5
    assert view(story).count_matching(gpu) == 1
    story.ok("PUT", f"/v1/os-hosts/{host}", {"gpu": "no"})
    assert view(story).count_matching(gpu) == 0
    story.ok("DELETE", f"/v1/os-hosts/{host}")
    assert free(story) == 4


def test_refusals_and_windows_from_memory_equal_those_of_sql(make_story: MakeStory) -> None:
    stories = make_story(manager__calendar_memory="off"), make_story(manager__calendar_memory="on")
    sql, memory = stories
    sql.register(4)
    dice = random.Random(7)  # noqa: S311 - the same leases in each run
    for _ in range(12):
        start = dice.randrange(30, 600)
        token = dice.choice([MINE, OTHER])
        body = sql.lease_body(
            start, start + dice.randrange(30, 240), reservations=[host_reservation(1, 2)]
        )
        sql.call("POST", "/v1/leases", body, token=token)
    memory.runtime.calendar.load()
    refused = 0
    for _ in range(40):
        start, count = dice.randrange(30, 700), dice.randrange(1, 6)
        body = asking(sql, count, start, start + dice.randrange(30, 300))
        answers = [
            each.call("POST", "/v2/leases?dry_run=true", body, token=MINE) for each in stories
        ]
        assert answers[0].status_code == answers[1].status_code
        if answers[0].status_code == 409:
            assert answers[0].get_json() == answers[1].get_json()
            refused += 1
    assert refused > 10
    for _ in range(20):
        first, length = dice.randrange(30, 300), dice.randrange(10, 200)
        search = {
            "reservations": [hosts(2, 2)],
            "start_after": sql.moment(first),
            "end_by": sql.moment(first + 600),
            "duration": length * 60,
            "limit": 3,
        }
        sent = [each.ok("POST", "/v2/availability/search", search) for each in stories]
        assert sent[0] == sent[1]


def test_a_lease_may_fill_the_whole_span_of_a_search(story: Story) -> None:
    body = {"name": "all", "start": "asap", "duration": 3600, "end_by": story.moment(60)}
    lease = story.ok("POST", "/v2/leases", {**body, "reservations": [hosts()]})
    assert (lease["start"], lease["end"]) == (story.moment(0), story.moment(60))


def test_a_refusal_reads_memory_and_no_tables(story: Story) -> None:
    reserve(story, 4)
    with questions_of(story, "memory"):
        found = refusal(story, 2)
    assert (found["asked"], found["matching"], found["free"]) == (2, 4, 0)


def test_a_booking_in_memory_that_is_gone_is_found_by_the_check_with_sql(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = reserve(story, 4)
    free(story)
    with no_changes(story, monkeypatch):
        story.ok("DELETE", f"/v1/leases/{lease}", token=OTHER)
        refusal(story, 4)
        monkeypatch.setattr(calendar_memory, "_CHECKED_SHARE", 1.0)
        reserve(story, 4)
    assert broken(story) == [("audit.invariant_broken", 6)]
    assert story.runtime.calendar.view(HOST) is None


def test_sql_checks_at_most_one_refusal_per_second(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calendar_memory, "_CHECKED_SHARE", 0.5)
    memory = story.runtime.calendar
    times = [(0.6, 10.0), (0.4, 10.0), (0.4, 10.9), (0.6, 11.0), (0.4, 11.0), (0.4, 11.1)]
    checked = [memory.shall_check(dice, now) for dice, now in times]
    assert checked == [False, True, False, False, True, False]


def test_a_comparison_finds_a_booking_in_memory_that_is_gone(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = reserve(story, 4)
    free(story)
    with no_changes(story, monkeypatch):
        story.ok("DELETE", f"/v1/leases/{lease}", token=OTHER)
    story.runtime.calendar.compare()
    reserve(story, 4)  # SQL answers now
    story.runtime.calendar.load()
    for _ in range(2):  # the resources, and the end of the round
        story.runtime.calendar.compare()
    assert broken(story) == [("audit.invariant_broken", 6), ("audit.invariant_holds", 6)]


def test_a_booking_that_memory_does_not_know_is_not_booked_twice(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    with no_changes(story, monkeypatch):
        reserve(story, 4)
        assert free(story) == 4
        refusal(story, 1)
        assert len(story.ok("GET", "/v1/leases")["leases"]) == 1


def test_after_a_failed_catch_up_sql_answers(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Changes:
        raise sa.exc.OperationalError("SELECT", None, OSError("no answer"))

    with monkeypatch.context() as patch:
        patch.setattr(type(story.runtime.calendar._feed), "latest_changes", fail)
        assert story.runtime.calendar.view(HOST) is None
        reserve(story, 4)
    assert free(story) == 0


def test_a_copy_that_was_loaded_after_a_catch_up_is_not_taken_for_current(story: Story) -> None:
    memory = story.runtime.calendar
    assert free(story) == 4
    memory.load()
    memory._begun -= 1  # as for a request that came before the last catch-up began
    assert memory.view(HOST) is None
    memory._begun += 1
    assert free(story) == 4


def test_a_gap_in_the_changes_drops_the_copy(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = story.runtime.calendar._feed
    lost = Changes(Position("", ""), is_lost=True)
    with monkeypatch.context() as patch:
        patch.setattr(type(feed), "latest_changes", lambda *_: lost)
        assert story.runtime.calendar.view(HOST) is None
    assert broken(story) == []


def test_questions_that_arrive_during_a_catch_up_share_the_next_one(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = story.runtime.calendar
    calls: list[None] = []
    begun, go_on = threading.Event(), threading.Event()
    catch_up = CalendarMemory._catch_up

    def slow(self: CalendarMemory) -> None:
        calls.append(None)
        begun.set()
        go_on.wait(20)
        catch_up(self)

    monkeypatch.setattr(CalendarMemory, "_catch_up", slow)
    threads = [threading.Thread(target=memory.view, args=(HOST,)) for _ in range(6)]
    threads[0].start()
    begun.wait(20)
    arrived = threading.Semaphore(0)
    lock = memory._catching
    monkeypatch.setattr(memory, "_catching", _Announced(lock, arrived))
    for thread in threads[1:]:
        thread.start()
    for _ in threads[1:]:
        arrived.acquire(timeout=20)
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert len(calls) == 2


def test_what_is_committed_during_a_comparison_is_no_difference(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = story.runtime.calendar
    arrived = threading.Semaphore(0)
    reader = threading.Thread(target=memory.view, args=(HOST,))
    feed = type(memory._feed)
    spans_of = feed.spans_of

    def late(*arguments: Any) -> Any:
        found = spans_of(*arguments)
        with monkeypatch.context() as patch:
            patch.setattr(memory, "_use", Use.OFF)  # the comparison uses memory
            reserve(story, 4)
        monkeypatch.setattr(memory, "_catching", _Announced(catching, arrived))
        reader.start()
        arrived.acquire(timeout=20)
        reader.join(0.3)  # it waits for the end of the comparison
        return found

    catching = memory._catching
    monkeypatch.setattr(feed, "spans_of", late)
    memory.compare()
    reader.join(20)
    assert broken(story) == []


class _Announced:
    """A lock that counts the threads that want it."""

    def __init__(self, lock: Any, arrived: threading.Semaphore) -> None:
        self._lock, self._arrived = lock, arrived

    def __enter__(self) -> None:
        self._arrived.release()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@contextmanager
def no_changes(story: Story, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the feed lose what is committed in the block."""
    feed = type(story.runtime.calendar._feed)
    latest_changes = feed.latest_changes

    def lose(*arguments: Any) -> Changes:
        return Changes(latest_changes(*arguments).position)

    with monkeypatch.context() as patch:
        patch.setattr(feed, "latest_changes", lose)
        yield
        story.runtime.calendar.view(HOST)


def broken(story: Story) -> list[tuple[str, int]]:
    """Return the notifications about invariants, with the number of the invariant."""
    story.runtime.calendar.report()
    found = [item for item in story.published() if item["event_type"].startswith("audit.")]
    return [(item["event_type"], item["payload"]["invariant"]) for item in found]


@pytest.mark.parametrize("backend", ["mariadb"], indirect=True)
def test_a_process_numbers_changes_of_bookings_if_no_manager_does(
    make_story_everywhere: MakeStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calendar_memory, "_MOST_UNNUMBERED", 1)
    made = make_story_everywhere(manager__calendar_memory="on")
    made.register(4)
    made.runtime.calendar.load()
    reserve(made, 2)
    assert free(made) == 2
    made.runtime.calendar._turn()
    unnumbered = sa.select(sa.func.count()).where(CHANGES.c.seq.is_(None))
    with made.runtime.database.read() as session:
        assert session.scalar(unnumbered) == 0
    assert free(made) == 2
