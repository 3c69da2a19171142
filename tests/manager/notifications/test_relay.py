"""The relay publishes the outbox completely and in order, whatever broker and rivals do."""

import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from climate.core.notifications.message import Notification
from climate.db.notifications import outbox
from climate.db.tables.notifications import OutboxRow, RelayRow
from climate.manager.notifications import relay as relay_module
from climate.manager.notifications.relay import Relay
from climate.manager.process.periodic_task import PeriodicTask
from tests.conftest import MakeStory
from tests.support.backends import on_postgresql
from tests.support.emitters import Broken, FakeEmitter, broken_at, log
from tests.support.outbox_rows import write, write_many
from tests.support.process import eventually
from tests.support.service import Story


@contextmanager
def at_work(story: Story, relay: Relay) -> Iterator[None]:
    """Run a relay in a thread of its own."""
    relay.start()
    try:
        yield
    finally:
        relay.stop()
        story.runtime.wakeup.close()


# A broker that works.


def test_every_notification_is_published_once_and_in_order(story_everywhere: Story) -> None:
    story = story_everywhere
    write_many(story, 250)
    listener = FakeEmitter()
    relay = Relay(story.runtime, listener, "relay")
    assert [relay.flush(), relay.flush()] == [250, 0]
    assert [one.event_type for one, _ in listener.heard] == [f"event {n}" for n in range(250)]
    write(story, "lease", "one more")
    assert [relay.flush(), relay.flush()] == [1, 0]
    assert listener.seqs == list(range(1, 252))


def test_no_notification_is_skipped_after_a_backup_was_restored(
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


def test_no_notification_is_skipped_when_a_backup_is_restored_during_a_publication(
    story_everywhere: Story,
) -> None:
    """The backup gave the same numbers to other notifications than those marked as published."""
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
    known = {item["message_id"] for item in log(story)[3:4]}
    relay.flush()
    story.clock.advance(1)
    relay.flush()
    types = [one.event_type for one, _ in listener.heard]
    assert types[-4:] == [f"anew {n}" for n in range(4)]


# A broker that fails.


def test_the_relay_stops_where_the_broker_fails_and_resumes_there(
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


def test_notifications_that_wait_for_the_broker_can_be_read(story: Story) -> None:
    lease = story.reserve()
    relay = Relay(story.runtime, FakeEmitter(broken_at(1)), "relay")
    with pytest.raises(Broken):
        relay.flush()
    assert [item["event_type"] for item in log(story)] == ["lease.create"]
    story.reserve(60, 120, name="later")
    assert len(log(story)) == 1  # not numbered yet
    relay.flush()
    assert [item["lease_id"] == lease["id"] for item in log(story)] == [True, False]


def test_a_repeated_notification_keeps_its_id(story: Story) -> None:
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
    first, second = (item["message_id"] for item in log(story))
    assert tried == [first, second, second]
    assert first != second


def test_a_running_relay_retries(make_story: MakeStory) -> None:
    story = make_story(manager__poll_interval=0.1)
    write(story, "lease", "first", "second", "third")
    listener = FakeEmitter(broken_at(2))
    with at_work(story, Relay(story.runtime, listener, "relay")):
        eventually(lambda: listener.seqs == [1, 2, 3], "all were published")
    assert listener.is_closed


def test_pauses_grow_for_the_broker_and_not_for_the_database(
    make_story: MakeStory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("climate.manager.notifications.relay._PAUSE", 0.1)
    story = make_story(manager__poll_interval=0.1)
    logger = logging.getLogger("climate.manager.notifications.relay")
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


# Claims.


def test_a_second_relay_continues_when_the_claim_of_the_first_expires(
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


def test_a_stopped_relay_releases_its_claim(story_everywhere: Story) -> None:
    story = story_everywhere
    write(story, "lease", "first")
    stopped, successor = FakeEmitter(), FakeEmitter()
    with at_work(story, Relay(story.runtime, stopped, "first")):
        eventually(lambda: stopped.seqs == [1], "the first was published")
    write(story, "lease", "second")
    assert Relay(story.runtime, successor, "second").flush() == 1
    assert successor.seqs == [2]


def test_a_relay_whose_claim_expired_publishes_no_more(
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


def test_a_publishing_relay_takes_its_claim_once(story_everywhere: Story) -> None:
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
    assert statements == ["SELECT", "UPDATE"]


def test_a_slow_relay_without_rivals_publishes_everything_once(story: Story) -> None:
    write_many(story, 9)
    slow = FakeEmitter(lambda _: story.clock.advance(20))
    assert Relay(story.runtime, slow, "relay").flush() == 9
    assert slow.seqs == list(range(1, 10))


# What is sent.


def reminder(story: Story, delay: float) -> Mapping[str, Any]:
    """Return the payload that a relay publishes ``delay`` seconds after a reminder of a minute."""
    listener = FakeEmitter()
    story.reserve(2, 60)
    story.run()  # the heads-up that is due at once
    story.relay.flush()
    story.at(1)
    story.clock.advance(delay)
    Relay(story.runtime, listener, "manager-1").flush()
    [(_, payload)] = listener.heard
    return payload


@pytest.mark.parametrize(("delay", "starts_in"), [(0, 60), (59.5, 0.5), (75, -15)])
def test_starts_in_is_counted_from_the_publication(
    story: Story, delay: float, starts_in: float
) -> None:
    payload = reminder(story, delay)
    assert payload["starts_in"] == starts_in
    assert [host["id"] for host in payload["hosts"]] == story.hosts_of(payload["lease_id"])
    kept = log(story)[-1]
    assert (payload["seq"], payload["message_id"]) == (kept["seq"], kept["message_id"])
    assert kept["payload"]["starts_in"] == 60, "the log keeps what it said when it was written"


# A broker that is silent.


def test_a_silent_broker_does_not_hold_up_readers(make_story: MakeStory) -> None:
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


def test_concurrent_relays_number_without_gaps(story_everywhere: Story) -> None:
    story = story_everywhere
    relays = [Relay(story.runtime, FakeEmitter(), f"relay-{n}") for n in range(4)]
    write_many(story, 250)
    numbering = [threading.Thread(target=relay.number) for relay in relays]
    for thread in numbering:
        thread.start()
    for thread in numbering:
        thread.join()
    assert [item["seq"] for item in log(story, limit=1000)] == list(range(1, 251))
    assert [item["event_type"] for item in log(story, limit=1000)] == [
        f"event {n}" for n in range(250)
    ]


@on_postgresql
def test_the_search_for_new_notifications_reads_no_numbered_ones(
    story_everywhere: Story,
) -> None:
    """Other databases use the index of the numbers, which also contains the ids."""
    story, engine = story_everywhere, story_everywhere.runtime.database.engine
    write_many(story, 1000)
    with engine.begin() as connection:
        connection.exec_driver_sql("ANALYZE outbox")  # misleading: no notification has a number
    story.relay.flush()
    for search in (outbox._IS_NEW, outbox._FIRST_NEW.params(limit=500)):
        text = search.compile(engine, compile_kwargs={"literal_binds": True})
        with engine.begin() as connection:
            steps = str(connection.exec_driver_sql(f"EXPLAIN {text}").all())
        assert "using outbox_new" in steps, steps


def test_stop_waits_at_most_shutdown_timeout_for_both_threads(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, timeout = [0.0], story.runtime.settings.shutdown_timeout

    def hang(_: object, patience: float) -> bool:
        clock[0] += max(0.0, patience)
        return False

    relay = Relay(story.runtime, FakeEmitter(), "relay")
    monkeypatch.setattr(relay_module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(PeriodicTask, "stop", hang)
    relay.stop()
    assert clock[0] == timeout > 0
