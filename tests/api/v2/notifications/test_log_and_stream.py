"""/v2/notifications: filters, long polling, streams and removed notifications."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
import sqlalchemy as sa
from werkzeug.test import TestResponse

from climate.api.v2.notifications import event_stream
from tests.conftest import MakeStory
from tests.support import threads
from tests.support.outbox_rows import publish, publish_old_and_new, write_many
from tests.support.process import eventually
from tests.support.service import Story

LOG, STREAM = "/v2/notifications", "/v2/notifications/stream"


def seqs(story: Story, query: str, token: str | None = None) -> list[int]:
    answer = story.ok("GET", f"{LOG}?{query}", token=token)
    return [notification["seq"] for notification in answer["notifications"]]


def test_every_database_filters_the_log(story_everywhere: Story) -> None:
    story = story_everywhere
    publish(story, "lease.create", "lease.event.start_lease", "lease.event.end_lease", lease_id="a")
    publish(story, "lease.create", "lease.delete", lease_id="b", project="lab")
    story.reserve()
    story.relay.flush()
    for query, expected in [
        ("event_type=lease.event.*", [2, 3]),
        ("event_type=lease.create&event_type=lease.d*", [1, 4, 5, 6]),
        ("event_type=lease.event.mine*", []),
        ("event_type=lease.update", []),
        ("event_type=*&lease_id=b", [4, 5]),
        ("project_id=lab", [4, 5]),
        ("resource_type=physical:host", [6]),
        ("resource_type=virtual:instance", []),
        ("after=1&limit=1&event_type=lease.create", [4]),
    ]:
        assert seqs(story, query) == expected, query


def test_the_answer_says_where_to_continue_and_shows_only_own_notifications(story: Story) -> None:
    publish(story, "lease.create", "two", "three", project="lab")
    for query, after in (("event_type=lease.create", 3), ("limit=1", 1), ("after=7", 7)):
        assert story.ok("GET", f"{LOG}?{query}")["after"] == after
    assert seqs(story, "project_id=lab", "alice:lab") == [1, 2, 3]
    assert seqs(story, "", "bob:office") == []
    for path in (LOG, STREAM):
        assert story.problem(403, "GET", f"{path}?project_id=lab", token="bob:office")


def test_without_a_position_and_a_limit_the_answer_is_the_last_number(story: Story) -> None:
    assert story.ok("GET", f"{LOG}?limit=0") == {"notifications": [], "after": 0}
    publish(story, "first")
    publish(story, "second")
    assert story.ok("GET", f"{LOG}?limit=0") == {"notifications": [], "after": 2}


class Poll:
    """A long poll in its own thread."""

    def __init__(self, story: Story, query: str) -> None:
        self._answer: TestResponse | None = None
        self._get: Callable[[], TestResponse] = lambda: story.call("GET", f"{LOG}?{query}")
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._answer = self._get()

    @property
    def is_waiting(self) -> bool:
        return self._thread.is_alive()

    def seqs(self) -> list[int]:
        self._thread.join()
        assert self._answer is not None
        return [notification["seq"] for notification in self._answer.get_json()["notifications"]]


def test_a_long_poll_answers_when_a_matching_notification_comes(
    make_story_everywhere: MakeStory,
) -> None:
    story = make_story_everywhere(manager__poll_interval=30)
    poll = Poll(story, "wait=60&after=0&event_type=lease.delete")
    eventually(lambda: story.runtime.latest.wait(0, 0) is False, "it waits")
    publish(story, "first")
    assert poll.is_waiting
    publish(story, "lease.delete")
    assert poll.seqs() == [2]


def test_a_long_poll_sees_the_notifications_of_another_process(
    make_story_everywhere: MakeStory,
) -> None:
    reader, writer = make_story_everywhere(), make_story_everywhere()
    poll = Poll(reader, "wait=60")
    publish(writer, "first")
    assert poll.seqs() == [1]


def test_one_query_serves_all_polls_and_an_empty_poll_ends(make_story: MakeStory) -> None:
    story = make_story(manager__poll_interval=30, notifications__followers=20)
    queries: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith("SELECT") and threading.current_thread().name == "latest":
            queries.append(statement)

    sa.event.listen(story.runtime.database.engine, "before_cursor_execute", note)
    polls = [Poll(story, "wait=1") for _ in range(5)]
    assert [poll.seqs() for poll in polls] == [[]] * 5
    assert len(queries) == 1
    assert story.ok("GET", f"{LOG}?wait=0&after=4") == {"notifications": [], "after": 4}


def test_followers_are_limited_and_leave_their_place(make_story: MakeStory) -> None:
    story = make_story(notifications__followers=1)
    publish(story, "first")
    for _ in range(2):
        with closing(follow(story)):
            assert seqs(story, "wait=60") == [1]  # an answer that is there needs no place
            problem = story.problem(503, "GET", f"{LOG}?wait=60&after=1")
            assert problem["code"] == "too_many_followers"
            assert "without waiting" in problem["detail"]
            assert story.problem(503, "GET", STREAM)["code"] == "too_many_followers"
        with closing(story.http.head(STREAM)) as answer:
            assert answer.status_code == 200
        story.problem(400, "GET", f"{STREAM}?wait=1")
    story.ok("GET", f"{LOG}?wait=1&after=1")


def test_a_poll_whose_thread_cannot_start_is_refused_and_the_next_one_is_answered(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads.fail_once(monkeypatch, "latest")
    problem = story.problem(503, "GET", f"{LOG}?wait=60")
    assert problem["code"] == "too_many_followers"
    poll = Poll(story, "wait=60")
    publish(story, "first")
    assert poll.seqs() == [1]


def test_projects_share_the_places_and_some_are_kept_for_provisioners(
    make_story: MakeStory,
) -> None:
    story = make_story(notifications__followers=8, provisioning__enabled=True)
    with ExitStack() as streams:
        for user in ("a:lab", "b:lab"):
            streams.enter_context(closing(follow(story, token=user)))
        for path in (STREAM, f"{LOG}?wait=60"):
            problem = story.problem(503, "GET", path, token="c:lab")
            assert problem["detail"].startswith("2 requests of project lab")
        for user in ("a:office", "b:office", "a:shop", "b:shop"):
            streams.enter_context(closing(follow(story, token=user)))
        problem = story.problem(503, "GET", STREAM, token="a:desk")
        assert problem["detail"].startswith("6 requests of projects")
        story.ok("GET", "/v2/preparations?wait=1")


# Streams.


def follow(story: Story, query: str = "", token: str | None = None, **headers: str) -> TestResponse:
    sent = {**({"X-Auth-Token": token} if token else {}), **headers}
    answer = story.http.get(f"{STREAM}?{query}", headers=sent, buffered=False)
    assert answer.status_code == 200, answer.get_data(as_text=True)
    return answer


def received(answer: TestResponse) -> Iterator[dict[str, Any]]:
    """Return the events of a stream one by one, as a client parses them."""
    for text in answer.iter_encoded():
        assert text.endswith(b"\n\n")
        yield dict(line.split(": ", 1) for line in text.decode().strip().split("\n"))


def test_a_stream_resumes_where_it_broke(story_everywhere: Story) -> None:
    story = story_everywhere
    publish(story, "one", "two")
    with closing(follow(story)) as answer:
        assert answer.mimetype == "text/event-stream"
        assert answer.headers["Cache-Control"] == "no-store"
        events = received(answer)
        assert next(events) == {"retry": "2000", "id": "2"}
        publish(story, "three")
        event = next(events)
        assert event["id"] == "3"
        (logged,) = story.ok("GET", f"{LOG}?after=2")["notifications"]
        assert json.loads(event["data"]) == logged
    with closing(follow(story, "after=0", **{"Last-Event-ID": "1"})) as answer:
        events = received(answer)
        assert [next(events)["id"] for _ in range(3)] == ["1", "2", "3"]


def test_a_stream_sends_what_its_reader_may_see_and_a_heartbeat(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(follow(story, "event_type=lease.*", token="alice:lab")) as answer:
        publish(story, "lease.create", project="office")
        publish(story, "other", "lease.update", project="lab")
        events = received(answer)
        assert [next(events)["id"] for _ in range(2)] == ["0", "3"]
    monkeypatch.setattr(event_stream, "_HEARTBEAT", 0.05)
    with closing(follow(story, "event_type=lease.event.mine")) as answer:
        events = received(answer)
        next(events)
        publish(story, "another")
        heartbeat = next(event for event in events if event["id"] == "4")
        assert heartbeat == {"": "still here", "id": "4"}
    for text in ("x", "-1", "1.5", "9" * 19):
        problem = story.problem(400, "GET", STREAM, headers={"Last-Event-ID": text})
        assert problem["errors"][0]["header"] == "Last-Event-ID"


def test_a_stream_ends_after_15_minutes_and_with_the_process(story: Story) -> None:
    with closing(follow(story)) as answer:
        events = received(answer)
        next(events)
        story.clock.advance(15 * 60)
        assert list(events) == []
    with closing(follow(story)) as answer:
        events = received(answer)
        next(events)
        threading.Timer(0.2, story.runtime.latest.close).start()
        assert list(events) == []


# Retention.


def test_old_notifications_are_removed_and_readers_who_missed_them_get_410(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    publish_old_and_new(story, 1200, 3)
    assert seqs(story, "") == [1201, 1202, 1203]
    assert seqs(story, "after=1200") == [1201, 1202, 1203]
    for query in (
        "after=0",
        "after=1199",
        "after=1199&event_type=node.*",
        "after=1199&wait=9",
    ):
        problem = story.problem(410, "GET", f"{LOG}?{query}")
        assert (problem["code"], problem["oldest"]) == ("notifications_removed", 1201)
        assert "after=1200" in problem["detail"]
    problem = story.problem(410, "GET", STREAM, headers={"Last-Event-ID": "7"})
    assert problem["oldest"] == 1201
    publish(story, "next")
    assert seqs(story, "after=1203") == [1204]


def test_keeps_unpublished_notifications_and_all_without_a_retention(
    make_story: MakeStory,
) -> None:
    story = make_story()
    write_many(story, 3)
    story.relay.number()
    story.clock.advance(91 * 86400)
    story.dispatcher.upkeep.tidy()
    assert seqs(story, "") == [1, 2, 3]
    forever = make_story(notifications__kept_days=0)
    publish_old_and_new(forever, 0, 1)
    forever.clock.advance(91 * 86400)
    forever.dispatcher.upkeep.tidy()
    assert seqs(forever, "after=0") == [1, 2, 3, 4]


def test_a_reader_during_the_removal_misses_nothing_unknowingly(story_everywhere: Story) -> None:
    """The pages have no gaps until the reader gets 410."""
    story = story_everywhere
    write_many(story, 900)
    story.relay.flush()
    story.clock.advance(91 * 86400)
    cleaner = threading.Thread(target=story.dispatcher.upkeep.tidy)
    cleaner.start()
    seen = [0]
    while True:
        answer = story.call("GET", f"{LOG}?after={seen[-1]}&limit=7")
        if answer.status_code == 410:
            assert answer.get_json()["oldest"] > seen[-1] + 1
            break
        page = [notification["seq"] for notification in answer.get_json()["notifications"]]
        seen += page
        if not page:
            break
    cleaner.join()
    assert seen == list(range(len(seen)))
