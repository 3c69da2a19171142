"""Fencing: a thread may change the cloud only while its claim on an event is valid.

A manager process claims an event for a limited time, and then processes the event. A process that
was paused may continue a plug-in call long after another manager has claimed the event. Therefore
the thread gets a fencing token, which expires with the claim. All OpenStack clients, and the
simulated cloud, call ``check`` right before each change. Two gaps remain: a pause between ``check``
and the request, and a request that reaches the cloud late. A thread without a fencing token, for
instance in a command, can always change the cloud.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_NEVER = float("-inf")
_ALWAYS = float("inf")


class Fenced(Exception):
    """Raised right before a change of the cloud, if the fencing token has expired or was revoked.

    The change is not made. Earlier changes of the same plug-in call remain.
    """


class FencingToken:
    """Permission to change the cloud until a deadline, which ``extend`` changes.

    ``elapsed`` is a monotonic clock in seconds, and ``until`` the deadline on this clock. By
    default, there is no deadline.
    """

    def __init__(self, elapsed: Callable[[], float] = lambda: 0.0, until: float = _ALWAYS) -> None:
        self._elapsed = elapsed
        self._until = until
        #: Whether ``check`` has raised Fenced.
        self.blocked_a_change = False

    def extend(self, until: float) -> None:
        """Set the deadline to ``until``, unless the token was revoked."""
        if self._until != _NEVER:
            self._until = until

    def revoke(self) -> None:
        """Let the token expire now; ``extend`` has no effect afterwards."""
        self._until = _NEVER

    def check(self) -> None:
        """Raise Fenced if the token has expired or was revoked."""
        if self._elapsed() >= self._until:
            self.blocked_a_change = True
            raise Fenced("the claim on this work has expired or was released: nothing was changed")


_TOKEN: ContextVar[FencingToken | None] = ContextVar("fencing_token", default=None)


@contextmanager
def fenced(token: FencingToken) -> Iterator[None]:
    """Context manager: this thread can change the cloud only while ``token`` is valid."""
    previous = _TOKEN.set(token)
    try:
        yield
    finally:
        _TOKEN.reset(previous)


def check() -> None:
    """Raise Fenced if this thread has a fencing token that is not valid any more.

    Call this right before each change of the cloud.
    """
    token = _TOKEN.get()
    if token is not None:
        token.check()
