"""The relay publishes the outbox: all of it, in order, whatever the broker and others do."""

import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from climate.core.notification import Notification
from climate.db.outbox_tables import OutboxRow, RelayRow
from climate.manager.relay import Relay
from tests.conftest import MakeStory
from tests.functional.emitters import Broken, FakeEmitter, broken_at, log, write, write_many
from tests.process import eventually
from tests.service import Story


@contextmanager
def at_work(story: Story, relay: Relay) -> Iterator[None]:
    """Have a relay work in a thread of its own."""
    relay.start()
    try:
        yield
    finally:
        relay.stop()
        story.runtime.wakeup.close()


# A broker that works.


def test_more_than_a_batch_is_published_whole_and_in_order(story_everywhere: Story) -> None:
    story = story_everywhere
    write_many(story, 250)
    listener = FakeEmitter()
    assert Relay(story.runtime, listener, "relay").flush() == 250
    assert [one.event_type for one, _ in listener.heard] == [f"event {n}" for n in range(250)]
    assert listener.seqs == list(range(1, 251))


def test_each_notification_is_published_once(story_everywhere: Story) -> None:
    story = story_everywhere
    listener = FakeEmitter()
    relay = Relay(story.runtime, listener, "relay")
    write(story, "lease", "first", "second")
    assert [relay.flush(), relay.flush()] == [2, 0]
    write(story, "lease", "third")
    assert [relay.flush(), relay.flush()] == [1, 0]
    assert listener.seqs == [1, 2, 3]


def test_nothing_is_passed_over_when_the_database_is_one_of_before(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    listener = FakeEmitter()
    relay = Relay(story.runtime, listener, "relay")
    for _ in range(5):
        write(story, "lease", "before")
        assert relay.flush() == 1
    with story.runtime.database.engine.begin() as connection:  # as a backup had it
        connection.execute(sa.delete(OutboxRow).where(OutboxRow.seq > 2))
        connection.execute(sa.update(RelayRow).values(last_seq=2, published_seq=2))
    write(story, "lease", "again")
    assert relay.flush() == 1
    assert [one.event_type for one, _ in listener.heard][5:] == ["again"]


def test_nothing_is_passed_over_when_the_database_becomes_one_of_before_meanwhile(
    story_everywhere: Story,
) -> None:
    """What is noted as published are other notifications there, that got the same numbers."""
    story = story_everywhere
    write_many(story, 6)

    def restore(notification: Notification) -> None:
        if notification.message_id not in known:
            return
        known.clear()
        with story.runtime.database.engine.begin() as connection:  # as a backup had it
            connection.execute(sa.delete(OutboxRow).where(OutboxRow.seq > 2))
            connection.execute(sa.update(RelayRow).values(last_seq=2, published_seq=2))
        write(story, "lease", *(f"anew {n}" for n in range(4)))
        relay.number()

    listener = FakeEmitter(restore)
    relay = Relay(story.runtime, listener, "relay")
    relay.number()
    known = {one["message_id"] for one in log(story)[3:4]}
    relay.flush()
    story.clock.advance(1)
    relay.flush()
    told = [one.event_type for one, _ in listener.heard]
    assert told[-4:] == [f"anew {n}" for n in range(4)]


# A broker that fails.


def test_the_relay_stops_where_the_broker_fails_and_goes_on_from_there(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    write_many(story, 120)
    listener = FakeEmitter(broken_at(3, 110))
    relay = Relay(story.runtime, listener, "relay")
    for last in (2, 109):
        with pytest.raises(Broken):
            relay.flush()
        assert listener.seqs == list(range(1, last + 1))
    assert relay.flush() == 11
    assert listener.seqs == list(range(1, 121))


def test_what_waits_for_the_broker_can_be_read(story: Story) -> None:
    lease = story.reserve()
    relay = Relay(story.runtime, FakeEmitter(broken_at(1)), "relay")
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

    relay = Relay(story.runtime, FakeEmitter(note_and_fail), "relay")
    with pytest.raises(Broken):
        relay.flush()
    relay.flush()
    first, second = (one["message_id"] for one in log(story))
    assert tried == [first, second, second]
    assert first != second


def test_a_relay_at_work_tries_again_by_itself(make_story: MakeStory) -> None:
    story = make_story(manager__poll_interval=0.1)
    write(story, "lease", "first", "second", "third")
    listener = FakeEmitter(broken_at(2))
    with at_work(story, Relay(story.runtime, listener, "relay")):
        eventually(lambda: listener.seqs == [1, 2, 3], "all were published")
    assert listener.is_closed


def test_a_database_that_is_away_is_tried_again_soon_however_often_it_fails(
    make_story: MakeStory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Pauses that grow are for the broker: when the database is back, the world is told at once."""
    monkeypatch.setattr("climate.manager.relay._PAUSE", 0.1)
    story = make_story(manager__poll_interval=0.1)
    logger = logging.getLogger("climate.manager.relay")
    monkeypatch.setattr(logger, "handlers", [caplog.handler])
    write(story, "lease", "first")
    failures = iter([Broken(), Broken(), *3 * [sa.exc.OperationalError("look", {}, Broken())]])

    def fail(_: Notification) -> None:
        if failure := next(failures, None):
            raise failure

    listener = FakeEmitter(fail)
    with at_work(story, Relay(story.runtime, listener, "relay")):
        eventually(lambda: listener.seqs == [1], "it was published")
    pauses = re.findall(r"next try in (\S+) s", caplog.text)
    assert pauses == ["0.1", "0.2", "0.1", "0.1", "0.1"]


# Turns.


def test_a_second_relay_takes_over_when_the_turn_of_the_first_is_over(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    write(story, "lease", "first", "second", "third")
    died, successor = FakeEmitter(broken_at(2)), FakeEmitter()
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
    stopped, successor = FakeEmitter(), FakeEmitter()
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
    successor = FakeEmitter()
    second = Relay(story.runtime, successor, "second")

    def dawdle(notification: Notification) -> None:
        if notification.seq == 3:
            story.clock.advance(31)
            second.flush()

    slow = FakeEmitter(dawdle)
    first = Relay(story.runtime, slow, "first")
    first.flush()
    assert slow.seqs == [1, 2, 3]
    assert successor.seqs == list(range(1, 10))
    write(story, "lease", "later")
    assert (first.flush(), second.flush()) == (0, 1)


def test_a_relay_asks_for_its_turn_once_as_long_as_it_publishes(story_everywhere: Story) -> None:
    story, statements = story_everywhere, []
    relay = Relay(story.runtime, FakeEmitter(), "relay")
    write(story, "lease", "first")
    relay.flush()
    write(story, "lease", "second")
    relay.number()

    def note(*given: Any) -> None:
        statements.append(given[2].split()[0])

    engine = story.runtime.database.engine
    sa.event.listen(engine, "before_cursor_execute", note)
    batch = relay._next_batch()
    relay._publish(batch)
    sa.event.remove(engine, "before_cursor_execute", note)
    assert len(batch) == 1
    assert [one for one in statements if one != "NOTIFY"] == ["SELECT", "UPDATE"]


def test_a_relay_that_is_slow_and_alone_publishes_everything_once(story: Story) -> None:
    write_many(story, 9)
    slow = FakeEmitter(lambda _: story.clock.advance(20))
    assert Relay(story.runtime, slow, "relay").flush() == 9
    assert slow.seqs == list(range(1, 10))


# What is sent.


def heads_up(story: Story, delay: float) -> Mapping[str, Any]:
    """Return what is sent when the relay comes ``delay`` seconds after a heads-up of a minute."""
    listener = FakeEmitter()
    story.reserve(2, 60)
    story.run()  # the heads-up that is due at once
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
    assert [host["id"] for host in sent["hosts"]] == story.hosts_of(sent["lease_id"])


def test_the_log_keeps_what_was_true_when_it_was_written(story: Story) -> None:
    heads_up(story, 20)
    assert log(story)[-1]["payload"]["starts_in"] == 60


def test_what_is_sent_names_its_number_and_its_id(story: Story) -> None:
    listener = FakeEmitter()
    story.reserve()
    Relay(story.runtime, listener, "relay").flush()
    [kept] = log(story)
    [(_, payload)] = listener.heard
    assert (payload["seq"], payload["message_id"]) == (kept["seq"], kept["message_id"])
    assert payload["status"] == "PENDING"


# A broker that is silent.


def test_a_broker_that_is_silent_keeps_nothing_from_readers(make_story: MakeStory) -> None:
    story = make_story(manager__poll_interval=0.1)
    speaks, asked = threading.Event(), threading.Event()

    def wait(_: Notification) -> None:
        asked.set()
        speaks.wait(30)

    with at_work(story, Relay(story.runtime, FakeEmitter(wait), "relay")):
        write(story, "lease", "first")
        asked.wait(30)
        write(story, "lease", "second")
        eventually(lambda: len(log(story)) == 2, "both can be read")
        speaks.set()


def test_any_number_of_relays_number_without_gaps(story_everywhere: Story) -> None:
    story = story_everywhere
    relays = [Relay(story.runtime, FakeEmitter(), f"relay-{n}") for n in range(4)]
    write_many(story, 250)
    numbering = [threading.Thread(target=relay.number) for relay in relays]
    for thread in numbering:
        thread.start()
    for thread in numbering:
        thread.join()
    assert [one["seq"] for one in log(story, limit=1000)] == list(range(1, 251))
    assert [one["event_type"] for one in log(story, limit=1000)] == [
        f"event {n}" for n in range(250)
    ]
