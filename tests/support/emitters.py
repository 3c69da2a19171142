"""A fake broker that can fail, and notifications that are about nothing in particular."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from climate.core.notifications.message import Notification
from climate.db.notifications import outbox
from tests.support.service import Story

Action = Callable[[Notification], None]


@dataclass
class FakeEmitter:
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


def log(story: Story, after: int = 0, **query: Any) -> list[dict[str, Any]]:
    """Return what ``GET /v2/notifications`` says, without publishing anything first."""
    text = "&".join(f"{name}={value}" for name, value in {"after": after, **query}.items())
    return list(story.ok("GET", f"/v2/notifications?{text}")["notifications"])
