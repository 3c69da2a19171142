"""A claim on a node: kept while one waits, and given up when it is not surely ours."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from climate.provisioner.client import ApiUnavailable, ClaimLost, ClimateClient, NodeTask

LOG = logging.getLogger(__name__)

_TRY_AGAIN = 2.0


class Stopped(Exception):
    """The process is to end: what is under way is handed back."""


class Claim:
    """What one thread has claimed. It says nothing that is not so any more.

    When climate could not be told for as long as the claim holds, somebody else may have it.
    """

    def __init__(
        self,
        climate: ClimateClient,
        wanted: NodeTask,
        owner: str,
        seconds: int,
        stopping: threading.Event,
    ) -> None:
        """Claim nothing yet."""
        self.wanted = wanted
        self._climate, self._owner, self._seconds = climate, owner, seconds
        self._stopping = stopping
        self._kept_at = 0.0
        #: Which attempt this is, as climate counts; 0 before it is claimed.
        self.attempt = 0

    def acquire(self) -> None:
        """Claim it, or claim it on. Raises Lost, NotAnswered."""
        asked_at = time.monotonic()
        answer = self._climate.report(
            self.wanted, owner=self._owner, state="accepted", claim_seconds=self._seconds
        )
        self.attempt = answer["attempt"]
        self._kept_at = asked_at

    def pause(self, seconds: float) -> None:
        """Wait for so long, and keep the claim meanwhile. Raises Stopped, Lost."""
        until = time.monotonic() + seconds
        while True:
            self._keep()
            left = until - time.monotonic()
            if self._stopping.wait(max(min(left, self._seconds / 3), 0.0)):
                raise Stopped
            if left <= self._seconds / 3:
                return

    def finish(self, state: str, **said: Any) -> None:
        """Say what came of it, as often as it takes while we have it. Raises Lost."""
        while True:
            try:
                self._say(state=state, **said)
            except ApiUnavailable as error:
                LOG.warning("%s is %s, and climate is not told: %s", self.wanted.node, state, error)
                if self._stopping.wait(_TRY_AGAIN):
                    return
            else:
                return

    def release(self) -> None:
        """Let somebody else go on at once, if climate can be told; else the claim will expire."""
        try:
            self._say(state="wanted")
        except (ClaimLost, ApiUnavailable) as error:
            LOG.warning("%s was not handed back: %s", self.wanted.node, error)

    def _keep(self) -> None:
        age = time.monotonic() - self._kept_at
        if age < self._seconds / 3:
            return
        try:
            self.acquire()
        except ApiUnavailable as error:
            if age >= self._seconds:
                raise ClaimLost(f"nobody knows whose it is: {error}") from None
            LOG.warning("the claim on %s was not kept: %s", self.wanted.node, error)

    def _say(self, **said: Any) -> None:
        self._climate.report(self.wanted, owner=self._owner, **said)


def work(claim: Claim, task: Callable[[], None]) -> None:
    """Take a claim, and do what it is for; it is given back if we are to end before that is done.

    If it is somebody else's, or nobody knows whose, nothing more is done.
    """
    node, noun = claim.wanted.node, claim.wanted.noun
    try:
        claim.acquire()
        LOG.info("%s is ours: %s", node, noun)
        task()
    except ClaimLost as reason:
        LOG.info("%s is left alone: %s", node, reason)
    except ApiUnavailable as reason:
        LOG.warning("%s is left alone, climate does not answer: %s", node, reason)
    except Stopped:
        claim.release()
