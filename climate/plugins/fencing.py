"""Fencing: a thread changes a cloud only while the claim on its work is certainly valid.

A paused manager may resume in the middle of a call, long after another manager took its claim
over. Therefore the transport of all OpenStack clients and the journal of the simulated cloud call
``check`` right before each change. Two gaps remain: a pause between this check and the network,
and a request that arrives late. A thread without a token, such as a command's, is not fenced.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_NEVER = float("-inf")
_ALWAYS = float("inf")


class Fenced(Exception):
    """The fencing token has expired or was revoked. Nothing was changed."""


class FencingToken:
    """The right to change the cloud until a deadline, which ``extend`` moves.

    Times are seconds of the monotonic clock ``elapsed``. The default never expires.
    """

    def __init__(self, elapsed: Callable[[], float] = lambda: 0.0, until: float = _ALWAYS) -> None:
        self._elapsed = elapsed
        self._until = until
        #: Whether ``check`` has raised Fenced.
        self.blocked_a_change = False

    def extend(self, until: float) -> None:
        """Move the deadline, unless the token was revoked."""
        if self._until != _NEVER:
            self._until = until

    def revoke(self) -> None:
        """Expire the token for good."""
        self._until = _NEVER

    def check(self) -> None:
        """Raise Fenced if the token has expired."""
        if self._elapsed() >= self._until:
            self.blocked_a_change = True
            raise Fenced("the claim on this work has expired or was released: nothing was changed")


_TOKEN: ContextVar[FencingToken | None] = ContextVar("fencing_token", default=None)


@contextmanager
def fenced(token: FencingToken) -> Iterator[None]:
    """Let this thread change the cloud only while ``token`` is valid."""
    previous = _TOKEN.set(token)
    try:
        yield
    finally:
        _TOKEN.reset(previous)


def check() -> None:
    """Raise Fenced if this thread has a fencing token that has expired."""
    token = _TOKEN.get()
    if token is not None:
        token.check()
