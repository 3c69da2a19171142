"""The fence of effects: nothing is done to a cloud for a claim that may be another's by now.

A manager that was paused (its machine, its process) goes on in the middle of a call, maybe long
after its claim was taken over. So whoever changes the cloud asks right before each change:
``check``. There are two such places, the transport below all clients of OpenStack and the journal
of the simulated cloud. What is left is a pause between this question and the network, and a request
that was sent before the claim was lost and arrives after that.

The permit of the work that a thread does is in a context variable. A thread without one, as of a
command, is not fenced.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_NEVER = float("-inf")
_ALWAYS = float("inf")


class Fenced(Exception):
    """Too late to change anything: the claim may be another's. Nothing was done."""


class Permit:
    """That work may change the cloud until a moment of ``elapsed``, which can be put off."""

    def __init__(self, elapsed: Callable[[], float] = lambda: 0.0, until: float = _ALWAYS) -> None:
        """Permit changes until ``elapsed`` says ``until``: without either, always."""
        self._elapsed = elapsed
        self._until = until
        self.was_refused = False

    def prolong(self, until: float) -> None:
        """Permit changes for longer, unless the permit was taken away."""
        if self._until != _NEVER:
            self._until = until

    def revoke(self) -> None:
        """Permit nothing any more, for good."""
        self._until = _NEVER

    def check(self) -> None:
        """Raise Fenced if it is over."""
        if self._elapsed() >= self._until:
            self.was_refused = True
            raise Fenced("the claim on this work has run out, or was given up: nothing was done")


_PERMIT: ContextVar[Permit | None] = ContextVar("permit", default=None)


@contextmanager
def under(permit: Permit) -> Iterator[None]:
    """Change the cloud in this thread only as far as ``permit`` goes."""
    token = _PERMIT.set(permit)
    try:
        yield
    finally:
        _PERMIT.reset(token)


def check() -> None:
    """Raise Fenced if this thread works under a permit that is over."""
    permit = _PERMIT.get()
    if permit is not None:
        permit.check()
