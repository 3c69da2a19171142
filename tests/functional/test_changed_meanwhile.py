"""What is done to a lease while an action of it is under way is seen when that is stored."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.db import leases
from climate.db.tables import LeaseRow
from climate.manager.dispatcher import Dispatcher
from tests.support.service import Story


def warned(story: Story, meanwhile: Callable[[str], object], **fields: Any) -> str:
    """Return a lease that runs, and to which something was done while its end was prepared."""
    id_ = str(story.reserve(58, 118, before_end_date=story.date(100), **fields)["id"])
    story.at(58)
    plugin = story.runtime.plugins["physical:host"]
    genuine, once = plugin.before_end, [meanwhile]

    def before_end(*given: Any) -> Any:
        if once:
            once.pop()(id_)
        return genuine(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugin, "before_end", before_end)
        story.at(42)
    assert not once
    assert story.lease(id_)["status"] == "ACTIVE"
    return id_


def told(story: Story, lease_id: str) -> Any:
    """Return what was told when that was done."""
    (found,) = [
        one["payload"]
        for one in story.published(lease_id)
        if one["event_type"] == "lease.event.before_end_lease"
    ]
    return found


def test_a_lease_that_got_another_name_is_told_of_by_that(story_everywhere: Story) -> None:
    story = story_everywhere
    id_ = warned(story, lambda id_: story.ok("PUT", f"/v1/leases/{id_}", {"name": "another"}))
    assert told(story, id_)["name"] == "another"


def test_so_is_one_that_was_changed_by_whoever_locked_it(story_everywhere: Story) -> None:
    story = story_everywhere

    def rename(id_: str) -> None:
        def work(session: Session) -> None:
            leases.get(session, id_, lock=True)
            session.execute(sa.update(LeaseRow).where(LeaseRow.id == id_).values(name="another"))

        story.runtime.database.write(work)

    id_ = warned(story, rename)
    assert told(story, id_)["name"] == "another"


def test_so_is_one_that_code_of_the_release_before_has_renamed(story_everywhere: Story) -> None:
    """It does not count versions, but notes when it changed the lease."""
    story = story_everywhere

    def rename(id_: str) -> None:
        story.clock.advance(1)
        change = sa.update(LeaseRow).where(LeaseRow.id == id_)
        with story.runtime.database.engine.begin() as connection:
            connection.execute(change.values(name="another", updated_at=story.clock.now()))

    id_ = warned(story, rename)
    assert told(story, id_)["name"] == "another"


def test_an_event_that_was_told_meanwhile_is_shown_as_told(story_everywhere: Story) -> None:
    story = story_everywhere
    another = Dispatcher(story.runtime, "another")

    def pass_time(_: str) -> None:
        story.clock.advance(60)
        another.run_due()

    events = [{"event_type": "mine", "time": story.date(101)}]
    id_ = warned(story, pass_time, events=events)
    assert "lease.event.mine" in story.told(id_)
    shown = {one["event_type"]: one["status"] for one in told(story, id_)["events"]}
    assert shown["mine"] == "DONE"


def test_a_lease_that_nobody_has_changed_is_not_read_again(story_everywhere: Story) -> None:
    story, statements = story_everywhere, []

    def note(*given: Any) -> None:
        statements.append(given[2])

    engine = story.runtime.database.engine
    sa.event.listen(engine, "before_cursor_execute", note)
    warned(story, lambda _: statements.clear())
    sa.event.remove(engine, "before_cursor_execute", note)
    finishing = statements[: next(n for n, one in enumerate(statements) if "outbox" in one)]
    assert any("UPDATE leases" in one for one in finishing)
    assert not [one for one in finishing if "reservations.params" in one]
