"""Changes of a lease while a manager acts on it: the result is stored with the changed lease."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.db.events import queue as event_queue
from climate.db.leases import leases
from climate.db.tables.leases import LeaseRow
from climate.manager.events.dispatcher import Dispatcher
from tests.support.bodies import event_status
from tests.support.service import Story, host_reservation


def change_during_before_end(
    story: Story, change: Callable[[str], object], **fields: Any
) -> dict[str, Any]:
    """Change an active lease during its before_end call; return what was then notified."""
    lease_id = str(story.reserve(0, 118, before_end_date=story.date(100), **fields)["id"])
    story.run()
    plugin = story.runtime.plugins["physical:host"]
    genuine, changes = plugin.before_end, [change]

    def before_end(*arguments: Any) -> Any:
        if changes:
            changes.pop()(lease_id)
        return genuine(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugin, "before_end", before_end)
        story.at(100)
    assert not changes
    assert story.lease(lease_id)["status"] == "ACTIVE"
    (payload,) = [
        notification["payload"]
        for notification in story.published(lease_id)
        if notification["event_type"] == "lease.event.before_end_lease"
    ]
    return dict(payload)


def test_notifies_with_the_changed_lease_whoever_changed_it(story_everywhere: Story) -> None:
    story = story_everywhere

    def by_the_api(lease_id: str) -> None:
        story.ok("PUT", f"/v1/leases/{lease_id}", {"name": "another"})

    def by_a_transaction_with_a_lock(lease_id: str) -> None:
        def work(session: Session) -> None:
            leases.get(session, lease_id, lock=True)
            rename = sa.update(LeaseRow).where(LeaseRow.id == lease_id)
            session.execute(rename.values(name="another"))

        story.runtime.database.write(work)

    def by_the_previous_release(lease_id: str) -> None:
        # It does not count versions, but it sets updated_at.
        story.clock.advance(1)
        rename = sa.update(LeaseRow).where(LeaseRow.id == lease_id)
        with story.runtime.database.engine.begin() as connection:
            connection.execute(rename.values(name="another", updated_at=story.clock.now()))

    for change in (by_the_api, by_a_transaction_with_a_lock, by_the_previous_release):
        payload = change_during_before_end(story, change)
        assert payload["name"] == "another", change.__name__


def test_shows_an_event_as_done_that_another_manager_processed(story_everywhere: Story) -> None:
    story = story_everywhere
    other_manager = Dispatcher(story.runtime, "another")

    def run_the_event(_: str) -> None:
        story.clock.advance(60)
        other_manager.run_due()

    own_event = [{"event_type": "mine", "time": story.date(101)}]
    payload = change_during_before_end(story, run_the_event, events=own_event)
    assert "lease.event.mine" in story.event_types(payload["lease_id"])
    shown = {event["event_type"]: event["status"] for event in payload["events"]}
    assert shown["mine"] == "DONE"


def test_does_not_read_an_unchanged_lease_again(story_everywhere: Story) -> None:
    story, statements = story_everywhere, []

    def note(*arguments: Any) -> None:
        statements.append(arguments[2])

    engine = story.runtime.database.engine
    sa.event.listen(engine, "before_cursor_execute", note)
    change_during_before_end(story, lambda _: statements.clear())
    sa.event.remove(engine, "before_cursor_execute", note)
    end = next(number for number, text in enumerate(statements) if "outbox" in text)
    assert any("UPDATE leases" in text for text in statements[:end])
    assert not [text for text in statements[:end] if "reservations.params" in text]


def test_rejects_new_dates_while_snapshots_are_taken(story: Story) -> None:
    lease = story.reserve(0, 120, reservations=[host_reservation(before_end="snapshot")])
    story.run()
    story.clock.advance(3600)
    until = story.clock.now() + timedelta(seconds=30)
    due = [event["id"] for event in story.lease(lease["id"])["events"]]
    claimed = story.runtime.database.write(
        lambda session: event_queue.claim(session, "manager-2", story.clock.now(), until, due)
    )
    assert [claim[1] for claim in claimed] == [lease["id"]]
    assert event_status(story, lease, "before_end_lease") == "IN_PROGRESS"
    sooner = {"end_date": story.date(5)}
    assert "snapshots" in story.refused(409, "PUT", f"/v1/leases/{lease['id']}", sooner)
    story.ok("PUT", f"/v1/leases/{lease['id']}", {"name": "renamed"})
