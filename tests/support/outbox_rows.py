"""Notifications that a test writes itself."""

from functools import partial

from sqlalchemy.orm import Session

from climate.core.notifications.event_type import EventType
from climate.db.notifications import outbox
from tests.support.service import Story


def write(story: Story, lease_id: str, *event_types: str, project_id: str = "admin") -> None:
    """Write notifications, each in its own transaction."""
    for event_type in event_types:
        payload = {"lease_id": lease_id, "project_id": project_id}
        type_, now = EventType(event_type), story.clock.now()
        story.runtime.database.write(
            partial(outbox.write, event_type=type_, payload=payload, now=now)
        )


def write_many(story: Story, count: int) -> None:
    """Write notifications about one lease in one transaction."""

    def work(session: Session) -> None:
        for number in range(count):
            payload = {"lease_id": "lease", "project_id": "admin"}
            outbox.write(session, EventType(f"event {number}"), payload, story.clock.now())

    story.runtime.database.write(work)


def publish(
    story: Story, *event_types: str, lease_id: str = "lease", project: str = "admin"
) -> None:
    """Write notifications and publish them."""
    write(story, lease_id, *event_types, project_id=project)
    story.relay.flush()


def publish_old_and_new(story: Story, old: int, new: int) -> None:
    """Publish notifications; the retention then removes the first ``old`` of them."""
    write_many(story, old)
    story.relay.flush()
    story.clock.advance(91 * 86400)
    write_many(story, new)
    story.relay.flush()
    story.dispatcher.upkeep.tidy()
