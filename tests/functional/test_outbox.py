"""Notifications are written with their change, numbered, published in order, and kept."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.notification import Notification
from climate.db import outbox
from climate.manager.relay import Relay
from tests.process import eventually
from tests.service import Story, host_reservation

Action = Callable[[Notification], None]


@dataclass
class Listener:
    """An emitter that remembers; ``before`` may raise, or do what happens meanwhile."""

    before: Action = lambda _: None
    heard: list[tuple[Notification, Mapping[str, Any]]] = field(default_factory=list)
    is_closed: bool = False

    @property
    def seqs(self) -> list[int]:
        return [notification.seq for notification, _ in self.heard]

    def publish(self, notification: Notification, payload: Mapping[str, Any]) -> None:
        self.before(notification)
        self.heard.append((notification, payload))

    def close(self) -> None:
        self.is_closed = True


class Broken(RuntimeError):
    """What an emitter raises whose broker is away."""


def broken_at(*seqs: int) -> Action:
    """Return what fails once at each of ``seqs``."""
    left = set(seqs)

    def fail(notification: Notification) -> None:
        if notification.seq in left:
            left.remove(notification.seq)
            raise Broken

    return fail


def write(story: Story, lease_id: str, *event_types: str, project_id: str = "admin") -> None:
    """Write notifications, each in a transaction of its own."""
    for event_type in event_types:
        payload = {"lease_id": lease_id, "project_id": project_id}
        story.runtime.database.write(
            lambda session, event_type=event_type, payload=payload: outbox.write(
                session, event_type, payload, story.clock.now()
            )
        )


def write_many(story: Story, count: int) -> None:
    """Write notifications about one lease, in one transaction."""

    def work(session: Session) -> None:
        for number in range(count):
            payload = {"lease_id": "lease", "project_id": "admin"}
            outbox.write(session, f"event {number}", payload, story.clock.now())

    story.runtime.database.write(work)


def waiting(story: Story) -> int:
    """Return how many notifications there are, numbered or not."""
    with story.runtime.database.read() as session:
        return session.scalar(sa.text("SELECT count(*) FROM outbox")) or 0


def log(story: Story, after: int = 0, **query: Any) -> list[dict[str, Any]]:
    """Return what ``GET /v2/notifications`` says, without publishing anything first."""
    text = "&".join(f"{name}={value}" for name, value in {"after": after, **query}.items())
    return list(story.ok("GET", f"/v2/notifications?{text}")["notifications"])


@contextmanager
def at_work(story: Story, relay: Relay) -> Iterator[None]:
    """Have a relay work in a thread of its own."""
    relay.start()
    try:
        yield
    finally:
        relay.stop()
        story.runtime.wakeup.close()


# A notification and its change.


def test_what_is_refused_is_not_announced(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(60, 120, reservations=[host_reservation(4, 4)])
    before = waiting(story)
    story.refused(409, "POST", "/v1/leases", story.lease_body(60, 120))
    story.refused(400, "POST", "/v1/leases", story.lease_body(60, 30))
    change = {"end_date": story.date(30)}
    story.refused(400, "PUT", f"/v1/leases/{lease['id']}", change)
    story.refused(404, "DELETE", "/v1/leases/none")
    assert waiting(story) == before == 1


def test_what_cannot_be_announced_does_not_happen(story: Story) -> None:
    lease = story.reserve()
    with story.runtime.database.engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER full BEFORE INSERT ON outbox BEGIN SELECT RAISE(ABORT, 'full'); END"
        )
    assert story.call("POST", "/v1/leases", story.lease_body()).status_code == 500
    assert story.call("DELETE", f"/v1/leases/{lease['id']}").status_code == 500
    rename = {"name": "another"}
    assert story.call("PUT", f"/v1/leases/{lease['id']}", rename).status_code == 500
    assert story.ok("GET", "/v1/leases")["leases"] == [lease]
    assert len(story.hosts_of(lease["id"])) == 1


def test_every_change_is_announced(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(60, 120)
    story.ok("PUT", f"/v1/leases/{lease['id']}", {"name": "another"})
    story.ok("DELETE", f"/v1/leases/{lease['id']}")
    assert story.told(lease["id"]) == ["lease.create", "lease.update", "lease.delete"]


# Numbers.


def test_numbers_have_no_gaps_and_follow_the_order_of_each_lease(story_everywhere: Story) -> None:
    story = story_everywhere
    leases = [story.reserve(60, 120) for _ in range(3)]
    story.published()
    for minutes in (50, 9, 1, 60):
        story.at(minutes)
    told = story.published()
    assert [one["seq"] for one in told] == list(range(1, len(told) + 1))
    for lease in leases:
        assert story.told(lease["id"]) == [
            "lease.create",
            "lease.event.before_start_lease",
            "lease.event.before_start_lease",
            "lease.event.before_start_lease",
            "lease.event.start_lease",
            "lease.event.before_end_lease",
            "lease.event.end_lease",
        ]


def test_a_change_that_was_rolled_back_leaves_no_gap(story_everywhere: Story) -> None:
    story = story_everywhere
    write(story, "lease", "first")

    def work(session: Session) -> None:
        payload = {"lease_id": "lease", "project_id": "admin"}
        outbox.write(session, "never", payload, story.clock.now())
        raise Broken

    with pytest.raises(Broken):
        story.runtime.database.write(work)
    write(story, "lease", "second")
    story.relay.flush()
    assert [(one["seq"], one["event_type"]) for one in log(story)] == [(1, "first"), (2, "second")]


def test_more_than_a_batch_is_published_whole_and_in_order(story_everywhere: Story) -> None:
    story = story_everywhere
    write_many(story, 250)
    listener = Listener()
    assert Relay(story.runtime, listener, "relay").flush() == 250
    assert [one.event_type for one, _ in listener.heard] == [f"event {n}" for n in range(250)]
    assert listener.seqs == list(range(1, 251))


def test_each_notification_is_published_once(story_everywhere: Story) -> None:
    story = story_everywhere
    listener = Listener()
    relay = Relay(story.runtime, listener, "relay")
    write(story, "lease", "first", "second")
    assert [relay.flush(), relay.flush()] == [2, 0]
    write(story, "lease", "third")
    assert [relay.flush(), relay.flush()] == [1, 0]
    assert listener.seqs == [1, 2, 3]


@pytest.mark.parametrize("backend", ["postgresql", "mariadb"], indirect=True)
def test_a_reader_misses_nothing_when_transactions_commit_out_of_order(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    payload = {"lease_id": "slow", "project_id": "admin"}
    with Session(story.runtime.database.engine) as slow:
        outbox.write(slow, "written first", payload, story.clock.now())
        write(story, "fast", "committed first")
        seen = [(one["seq"], one["event_type"]) for one in story.published()]
        assert seen == [(1, "committed first")]
        slow.commit()
    story.relay.flush()
    assert [(one["seq"], one["event_type"]) for one in log(story, after=1)] == [
        (2, "written first")
    ]


# A broker that fails.


def test_the_relay_stops_where_the_broker_fails_and_goes_on_from_there(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    write_many(story, 120)
    listener = Listener(broken_at(3, 110))
    relay = Relay(story.runtime, listener, "relay")
    for last in (2, 109):
        with pytest.raises(Broken):
            relay.flush()
        assert listener.seqs == list(range(1, last + 1))
    assert relay.flush() == 11
    assert listener.seqs == list(range(1, 121))


def test_what_waits_for_the_broker_can_be_read(story: Story) -> None:
    lease = story.reserve()
    relay = Relay(story.runtime, Listener(broken_at(1)), "relay")
    with pytest.raises(Broken):
        relay.flush()
    assert [one["event_type"] for one in log(story)] == ["lease.create"]
    story.reserve(60, 120, name="later")
    assert len(log(story)) == 1  # not numbered yet
    relay.flush()
    assert [one["lease_id"] == lease["id"] for one in log(story)] == [True, False]


def test_what_is_tried_again_keeps_its_id(story: Story) -> None:
    write(story, "lease", "first", "second")
    tried: list[str] = []
    fail = broken_at(2)

    def note_and_fail(notification: Notification) -> None:
        tried.append(notification.message_id)
        fail(notification)

    relay = Relay(story.runtime, Listener(note_and_fail), "relay")
    with pytest.raises(Broken):
        relay.flush()
    relay.flush()
    first, second = (one["message_id"] for one in log(story))
    assert tried == [first, second, second]
    assert first != second


def test_a_relay_at_work_tries_again_by_itself(story: Story) -> None:
    write(story, "lease", "first", "second", "third")
    listener = Listener(broken_at(1, 3))
    with at_work(story, Relay(story.runtime, listener, "relay")):
        eventually(lambda: listener.seqs == [1, 2, 3], "all were published")
    assert listener.is_closed


# Turns.


def test_a_second_relay_takes_over_when_the_turn_of_the_first_is_over(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    write(story, "lease", "first", "second", "third")
    died, successor = Listener(broken_at(2)), Listener()
    second = Relay(story.runtime, successor, "second")
    with pytest.raises(Broken):
        Relay(story.runtime, died, "first").flush()
    assert second.flush() == 0
    story.clock.advance(29)
    assert second.flush() == 0
    story.clock.advance(2)
    assert second.flush() == 2
    assert (died.seqs, successor.seqs) == ([1], [2, 3])


def test_a_relay_that_is_stopped_gives_up_its_turn_at_once(story_everywhere: Story) -> None:
    story = story_everywhere
    write(story, "lease", "first")
    stopped, successor = Listener(), Listener()
    with at_work(story, Relay(story.runtime, stopped, "first")):
        eventually(lambda: stopped.seqs == [1], "the first was published")
    write(story, "lease", "second")
    assert Relay(story.runtime, successor, "second").flush() == 1
    assert successor.seqs == [2]


def test_a_relay_that_was_slower_than_its_turn_leaves_the_rest_to_its_successor(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    write_many(story, 9)
    successor = Listener()
    second = Relay(story.runtime, successor, "second")

    def dawdle(notification: Notification) -> None:
        if notification.seq == 3:
            story.clock.advance(31)
            second.flush()

    slow = Listener(dawdle)
    first = Relay(story.runtime, slow, "first")
    first.flush()
    assert slow.seqs == [1, 2, 3]
    assert successor.seqs == list(range(1, 10))
    write(story, "lease", "later")
    assert (first.flush(), second.flush()) == (0, 1)


def test_a_relay_that_is_slow_and_alone_publishes_everything_once(story: Story) -> None:
    write_many(story, 9)
    slow = Listener(lambda _: story.clock.advance(20))
    assert Relay(story.runtime, slow, "relay").flush() == 9
    assert slow.seqs == list(range(1, 10))


# What is sent.


def heads_up(story: Story, delay: float) -> Mapping[str, Any]:
    """Return what is sent when the relay comes ``delay`` seconds after a heads-up of a minute."""
    listener = Listener()
    story.reserve(2, 60)
    story.relay.flush()
    story.at(1)
    story.clock.advance(delay)
    Relay(story.runtime, listener, "manager-1").flush()
    [(_, payload)] = listener.heard
    return payload


@pytest.mark.parametrize(("delay", "starts_in"), [(0, 60), (20, 40), (59.5, 0.5), (75, -15)])
def test_starts_in_is_true_when_it_is_sent(story: Story, delay: float, starts_in: float) -> None:
    sent = heads_up(story, delay)
    assert sent["starts_in"] == starts_in
    assert [host["name"] for host in sent["hosts"]] == ["sim-1"]


def test_the_log_keeps_what_was_true_when_it_was_written(story: Story) -> None:
    heads_up(story, 20)
    assert log(story)[-1]["payload"]["starts_in"] == 60


def test_what_is_sent_names_its_number_and_its_id(story: Story) -> None:
    listener = Listener()
    story.reserve()
    Relay(story.runtime, listener, "relay").flush()
    [kept] = log(story)
    [(_, payload)] = listener.heard
    assert (payload["seq"], payload["message_id"]) == (kept["seq"], kept["message_id"])
    assert payload["status"] == "PENDING"


# Reading.


def test_a_reader_goes_on_from_its_cursor(story_everywhere: Story) -> None:
    story = story_everywhere
    write_many(story, 7)
    story.relay.flush()
    seen: list[int] = []
    while page := log(story, after=seen[-1] if seen else 0, limit=3):
        assert len(page) <= 3
        seen += [one["seq"] for one in page]
    assert seen == list(range(1, 8))


def test_a_page_has_a_hundred_unless_told(story: Story) -> None:
    write_many(story, 101)
    story.relay.flush()
    assert (len(log(story)), len(log(story, limit=1000))) == (100, 101)


@pytest.mark.parametrize(
    "query",
    [
        *("after=-1", "after=x", "after=", "after=1.5", "after=%C2%B2", f"after={2**63}"),
        *("limit=-1", "limit=1001", "limit=ten", "limit=", "limit=%00"),
    ],
)
def test_a_bad_number_is_refused_with_a_reason(story: Story, query: str) -> None:
    answer = story.call("GET", f"/v2/notifications?{query}")
    assert (answer.status_code, answer.mimetype) == (400, "application/problem+json")
    problem = answer.get_json()
    assert (problem["status"], problem["code"]) == (400, "invalid_input")
    assert problem["detail"].startswith(query.partition("=")[0])


def test_the_largest_number_is_one(story: Story) -> None:
    write(story, "lease", "first")
    story.relay.flush()
    assert log(story, after=2**63 - 1) == []


def test_everybody_reads_what_is_theirs_and_an_admin_reads_all(story: Story) -> None:
    write(story, "mine", "first", project_id="lab")
    write(story, "theirs", "second", project_id="office")
    write(story, "mine", "third", project_id="lab")
    story.relay.flush()

    def read(token: str | None, after: int = 0) -> list[int]:
        path = f"/v2/notifications?after={after}"
        return [one["seq"] for one in story.ok("GET", path, token=token)["notifications"]]

    assert read("alice:lab") == [1, 3]
    assert read("alice:lab", after=1) == [3]
    assert read("bob:office") == [2]
    assert read("carol:garage") == []
    assert read(None) == read("root:admin:admin") == [1, 2, 3]
