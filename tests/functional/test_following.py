"""Who follows notifications hears at once what is theirs, and keeps nobody else waiting."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests
import sqlalchemy as sa
from werkzeug.test import TestResponse

from climate.api.v2 import stream
from tests.conftest import MakeStory
from tests.support.emitters import log, write, write_many
from tests.support.process import Service, date, eventually, standalone, write_config
from tests.support.service import Story

LOG, STREAM = "/v2/notifications", "/v2/notifications/stream"


def tell(story: Story, *event_types: str, lease_id: str = "lease", project: str = "admin") -> None:
    """Write notifications, and have them numbered and published."""
    write(story, lease_id, *event_types, project_id=project)
    story.relay.flush()


def found(story: Story, query: str, token: str | None = None) -> list[int]:
    answer = story.ok("GET", f"{LOG}?{query}", token=token)
    return [one["seq"] for one in answer["notifications"]]


# Filters.


def test_what_is_wanted_can_be_said(story_everywhere: Story) -> None:
    story = story_everywhere
    tell(story, "lease.create", "lease.event.start_lease", "lease.event.end_lease", lease_id="a")
    tell(story, "lease.create", "lease.delete", lease_id="b", project="lab")
    story.reserve()
    story.relay.flush()
    assert found(story, "event_type=lease.event.*") == [2, 3]
    assert found(story, "event_type=lease.create&event_type=lease.d*") == [1, 4, 5, 6]
    assert found(story, "event_type=LEASE.*") == []
    assert found(story, "event_type=lease_create") == []
    assert found(story, "event_type=*&lease_id=b") == [4, 5]
    assert found(story, "project_id=lab") == [4, 5]
    assert found(story, "resource_type=physical:host") == [6]
    assert found(story, "resource_type=virtual:instance") == []
    assert found(story, "after=1&limit=1&event_type=lease.create") == [4]


def test_the_answer_says_where_to_go_on(story: Story) -> None:
    tell(story, "one", "two", "three")
    assert story.ok("GET", f"{LOG}?event_type=one")["after"] == 3
    assert story.ok("GET", f"{LOG}?limit=1")["after"] == 1
    assert story.ok("GET", f"{LOG}?after=7")["after"] == 7


def test_nobody_sees_another_project_by_asking_for_it(story: Story) -> None:
    tell(story, "one", project="lab")
    assert found(story, "project_id=lab", "alice:lab") == [1]
    assert found(story, "", "bob:office") == []
    assert story.problem(403, "GET", f"{LOG}?project_id=lab", token="bob:office")
    assert story.problem(403, "GET", f"{STREAM}?project_id=lab", token="bob:office")


@pytest.mark.parametrize(
    "query", ["wait=61", "wait=-1", "event_type=a*b", "event_type=", "after=x", "what=1"]
)
def test_what_makes_no_sense_is_refused(story: Story, query: str) -> None:
    name = query.partition("=")[0]
    assert story.problem(400, "GET", f"{LOG}?{query}")["errors"][0]["parameter"] == name


# Waiting.


class Waiting:
    """A question that waits, in a thread of its own."""

    def __init__(self, story: Story, query: str, token: str | None = None) -> None:
        self.answer: TestResponse | None = None
        self._ask = lambda: story.call("GET", f"{LOG}?{query}", token=token)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.answer = self._ask()

    @property
    def is_waiting(self) -> bool:
        return self._thread.is_alive()

    def seqs(self) -> list[int]:
        self._thread.join()
        assert self.answer is not None
        return [one["seq"] for one in self.answer.get_json()["notifications"]]


def test_who_waits_is_answered_when_there_is_something(make_story_everywhere: MakeStory) -> None:
    story = make_story_everywhere(manager__poll_interval=30)
    asked = Waiting(story, "wait=60&after=0&event_type=second")
    eventually(lambda: story.runtime.latest.wait(0, 0) is False, "it waits")
    tell(story, "first")
    assert asked.is_waiting
    tell(story, "second")
    assert asked.seqs() == [2]


def test_another_process_wakes_who_waits_or_a_look_does(make_story_everywhere: MakeStory) -> None:
    asking, telling = make_story_everywhere(), make_story_everywhere()
    asked = Waiting(asking, "wait=60")
    tell(telling, "first")
    assert asked.seqs() == [1]


def test_who_waits_in_vain_is_answered_in_the_end(story: Story) -> None:
    answer = story.ok("GET", f"{LOG}?wait=1&after=4")
    assert answer == {"notifications": [], "after": 4}


def test_what_is_there_needs_no_place(make_story: MakeStory) -> None:
    story = make_story(notifications__followers=0)
    tell(story, "first")
    assert found(story, "wait=60") == [1]
    refusal = story.problem(503, "GET", f"{LOG}?wait=60&after=1")
    assert refusal["code"] == "too_many_followers"
    assert "without waiting" in refusal["detail"]
    assert story.problem(503, "GET", STREAM)["code"] == "too_many_followers"


def test_a_place_is_free_again_when_its_follower_has_gone(make_story: MakeStory) -> None:
    story = make_story(notifications__followers=1)
    for _ in range(3):
        story.ok("GET", f"{LOG}?wait=1")
        with closing(follow(story)):
            story.problem(503, "GET", f"{LOG}?wait=1")
        with closing(story.http.head(STREAM)) as answer:
            assert answer.status_code == 200
        story.problem(400, "GET", f"{STREAM}?wait=1")


def test_one_looks_at_the_database_for_all_who_wait(make_story: MakeStory) -> None:
    story = make_story(manager__poll_interval=30)
    seen: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith("SELECT") and threading.current_thread().name == "latest":
            seen.append(statement)

    sa.event.listen(story.runtime.database.engine, "before_cursor_execute", note)
    asked = [Waiting(story, "wait=1") for _ in range(5)]
    for one in asked:
        assert one.seqs() == []
    assert len(seen) == 1


# Streams.


def follow(story: Story, query: str = "", token: str | None = None, **headers: str) -> TestResponse:
    """Begin to follow."""
    sent = {**({"X-Auth-Token": token} if token else {}), **headers}
    answer = story.http.get(f"{STREAM}?{query}", headers=sent, buffered=False)
    assert answer.status_code == 200, answer.get_data(as_text=True)
    return answer


def parts(answer: TestResponse) -> Iterator[dict[str, Any]]:
    """Return the parts of a stream, one by one, as a client sees them."""
    for text in answer.iter_encoded():
        assert text.endswith(b"\n\n")
        yield dict(line.split(": ", 1) for line in text.decode().strip().split("\n"))


def test_a_stream_goes_on_from_where_it_broke(story_everywhere: Story) -> None:
    story = story_everywhere
    tell(story, "one", "two")
    with closing(follow(story)) as answer:
        assert answer.mimetype == "text/event-stream"
        assert answer.headers["Cache-Control"] == "no-store"
        heard = parts(answer)
        assert next(heard) == {"retry": "2000", "id": "2"}
        tell(story, "three")
        event = next(heard)
        assert event["id"] == "3"
        assert json.loads(event["data"]) == log(story, after=2)[0]
    with closing(follow(story, "after=0", **{"Last-Event-ID": "1"})) as answer:
        heard = parts(answer)
        assert [next(heard)["id"] for _ in range(3)] == ["1", "2", "3"]


def test_a_stream_has_what_its_reader_may_see_and_wants(story: Story) -> None:
    with closing(follow(story, "event_type=lease.*", token="alice:lab")) as answer:
        tell(story, "lease.create", project="office")
        tell(story, "other", "lease.update", project="lab")
        heard = parts(answer)
        assert [next(heard)["id"] for _ in range(2)] == ["0", "3"]


def test_a_quiet_stream_shows_that_it_lives_and_how_far_it_is(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_HEARTBEAT", 0.05)
    with closing(follow(story, "event_type=mine")) as answer:
        heard = parts(answer)
        next(heard)
        tell(story, "another")
        alive = next(one for one in heard if one["id"] == "1")
        assert alive == {"": "still here", "id": "1"}


def test_a_stream_ends_after_a_while_and_with_the_process(story: Story) -> None:
    with closing(follow(story)) as answer:
        heard = parts(answer)
        next(heard)
        story.clock.advance(15 * 60)
        assert list(heard) == []
    with closing(follow(story)) as answer:
        heard = parts(answer)
        next(heard)
        threading.Timer(0.2, story.runtime.latest.close).start()
        assert list(heard) == []


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "9" * 19])
def test_an_id_that_was_never_sent_is_refused(story: Story, text: str) -> None:
    problem = story.problem(400, "GET", STREAM, headers={"Last-Event-ID": text})
    assert problem["errors"][0]["header"] == "Last-Event-ID"


# Under the built-in server.


def test_streams_leave_the_server_room_and_end_when_it_stops(tmp_path: Path) -> None:
    conf = write_config(tmp_path / "climate.conf", api__threads=1, notifications__followers=2)
    with standalone(tmp_path, f"--config-file={conf}") as (service, program):
        streams = [requests.get(f"{service.url}{STREAM}", stream=True, timeout=30) for _ in "12"]
        lines = [one.iter_lines() for one in streams]
        assert [next(each) for each in lines] == [b"retry: 2000"] * 2
        refusal = service.call("GET", STREAM)
        assert (refusal.status_code, refusal.json()["code"]) == (503, "too_many_followers")
        assert refusal.headers["Retry-After"]
        made = service.ok("POST", "/v1/leases", body(service))["lease"]
        for each in lines:
            event = next(line for line in each if line.startswith(b"data: "))
            assert json.loads(event[6:])["lease_id"] == made["id"]
        assert program.stop() == 0
        for each in lines:
            assert [line for line in each if line.startswith(b"data: ")] == []  # a whole answer
        assert "Traceback" not in program.errors


def body(_service: Service) -> dict[str, Any]:
    """Return a lease of nothing, far away."""
    days = 24 * 60
    return {
        "name": "far",
        "start_date": date(300 * days),
        "end_date": date(301 * days),
        "reservations": [],
    }


# What is not kept any more.


def old_and_new(story: Story, old: int, new: int) -> None:
    """Write so many notifications, of which the first ones are then removed."""
    write_many(story, old)
    story.relay.flush()
    story.clock.advance(91 * 86400)
    write_many(story, new)
    story.relay.flush()
    story.dispatcher.tidy()


def test_what_was_published_long_ago_is_removed_and_who_missed_it_is_told(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    old_and_new(story, 1200, 3)
    assert found(story, "") == [1201, 1202, 1203]
    assert found(story, "after=1200") == [1201, 1202, 1203]
    for query in ("after=0", "after=1199", "after=1199&event_type=none", "after=1199&wait=9"):
        problem = story.problem(410, "GET", f"{LOG}?{query}")
        assert (problem["code"], problem["oldest"]) == ("notifications_removed", 1201)
        assert "after=1200" in problem["detail"]
    assert story.problem(410, "GET", STREAM, headers={"Last-Event-ID": "7"})["oldest"] == 1201
    tell(story, "next")
    assert found(story, "after=1203") == [1204]


def test_what_was_not_published_is_kept(story: Story) -> None:
    write_many(story, 3)
    story.relay.number()
    story.clock.advance(91 * 86400)
    story.dispatcher.tidy()
    assert found(story, "") == [1, 2, 3]


def test_nothing_is_removed_if_all_is_to_be_kept(make_story: MakeStory) -> None:
    story = make_story(notifications__kept_days=0)
    old_and_new(story, 3, 1)
    assert found(story, "after=0") == [1, 2, 3, 4]


def test_who_reads_while_it_is_removed_misses_nothing_unknowingly(
    story_everywhere: Story,
) -> None:
    """A reader goes on, page by page, until it is told; what it has until then has no gaps."""
    story = story_everywhere
    write_many(story, 900)
    story.relay.flush()
    story.clock.advance(91 * 86400)
    cleaner = threading.Thread(target=story.dispatcher.tidy)
    cleaner.start()
    seen = [0]
    while True:
        answer = story.call("GET", f"{LOG}?after={seen[-1]}&limit=7")
        if answer.status_code == 410:
            assert answer.get_json()["oldest"] > seen[-1] + 1
            break
        page = [one["seq"] for one in answer.get_json()["notifications"]]
        seen += page
        if not page:
            break
    cleaner.join()
    assert seen == list(range(len(seen)))
