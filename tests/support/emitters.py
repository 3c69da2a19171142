"""A fake emitter that can fail, and the notifications that the API lists."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from climate.core.notifications.message import Notification
from tests.support.service import Story

Action = Callable[[Notification], None]


@dataclass
class FakeEmitter:
    """An emitter that keeps what it published; it calls ``before`` first, which may raise."""

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
    """The error of an emitter whose broker does not answer."""


def broken_at(*seqs: int) -> Action:
    """Return a function that raises once for each of ``seqs``."""
    remaining = set(seqs)

    def fail(notification: Notification) -> None:
        if notification.seq in remaining:
            remaining.remove(notification.seq)
            raise Broken

    return fail


def log(story: Story, after: int = 0, **query: Any) -> list[dict[str, Any]]:
    """Return the notifications of ``GET /v2/notifications``, without publishing any before."""
    text = "&".join(f"{name}={value}" for name, value in {"after": after, **query}.items())
    return list(story.ok("GET", f"/v2/notifications?{text}")["notifications"])
