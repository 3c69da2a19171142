"""A claim: for a limited time, only this provisioner may carry out a certain task.

The provisioner renews the claim during the work. It stops the work if the claim may have expired.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_when_event_set,
    wait_fixed,
)

from climate.provisioner.client import ApiUnavailable, ClaimLost, ClimateClient, NodeTask

LOG = logging.getLogger(__name__)

# Seconds between two attempts to report a result.
_RETRY = 2.0


class Stopped(Exception):
    """Raised in a task's thread if the process stops; the claim on the task is then released."""


class Claim:
    """The claim of one thread on a task (a preparation or shutdown).

    The claim is valid for ``seconds`` after each renewal. If climate cannot be reached for so long,
    another provisioner may have claimed the task. The thread must then give the task up and change
    nothing more; the methods raise ClaimLost.
    """

    def __init__(
        self,
        climate: ClimateClient,
        task: NodeTask,
        owner: str,
        seconds: int,
        stopping: threading.Event,
    ) -> None:
        self.task = task
        self._climate, self._owner, self._seconds = climate, owner, seconds
        self._stopping = stopping
        self._renewed_at = 0.0
        #: The number of this attempt, from climate; 0 before ``acquire``.
        self.attempt = 0

    def acquire(self) -> None:
        """Acquire the claim, or renew it.

        Raises ClaimLost if the task is over or another provisioner has claimed it, and
        ApiUnavailable if climate does not answer.
        """
        requested_at = time.monotonic()
        answer = self._report(state="accepted", claim_seconds=self._seconds)
        self.attempt = answer["attempt"]
        self._renewed_at = requested_at

    def pause(self, seconds: float) -> None:
        """Wait for ``seconds``, and renew the claim during that time.

        Raises Stopped if the process stops, and ClaimLost if the claim is lost or may have expired.
        """
        until = time.monotonic() + seconds
        while True:
            self._renew()
            remaining = until - time.monotonic()
            if self._stopping.wait(max(min(remaining, self._seconds / 3), 0.0)):
                raise Stopped
            if remaining <= self._seconds / 3:
                return

    def finish(self, state: str, **values: Any) -> None:
        """Report the result of the task, such as ``ready``; retry until climate has received it.

        If the process stops before that, return after one last attempt.
        Raises ClaimLost if the task is over or another provisioner has claimed it.
        """

        def log_failure(call: RetryCallState) -> None:
            error = call.outcome and call.outcome.exception()
            LOG.warning("cannot report that %s is %s: %s", self.task.node, state, error)

        retrying = Retrying(
            retry=retry_if_exception_type(ApiUnavailable),
            wait=wait_fixed(_RETRY),
            sleep=sleep_using_event(self._stopping),
            stop=stop_when_event_set(self._stopping),
            after=log_failure,
            retry_error_callback=lambda _: None,
        )
        retrying(self._report, state=state, **values)

    def release(self) -> None:
        """Release the claim, so that another provisioner can claim the task at once.

        If climate cannot be reached, the claim expires by itself.
        """
        try:
            self._report(state="wanted")
        except (ClaimLost, ApiUnavailable) as error:
            LOG.warning("cannot release the claim on %s: %s", self.task.node, error)

    def _renew(self) -> None:
        age = time.monotonic() - self._renewed_at
        if age < self._seconds / 3:
            return
        try:
            self.acquire()
        except ApiUnavailable as error:
            if age >= self._seconds:
                raise ClaimLost(f"the claim expired without an answer: {error}") from None
            LOG.warning("cannot renew the claim on %s: %s", self.task.node, error)

    def _report(self, **values: Any) -> Mapping[str, Any]:
        return self._climate.report(self.task, owner=self._owner, **values)


def run_claimed(claim: Claim, action: Callable[[], None]) -> None:
    """Acquire the claim on a task, then call ``action``, which carries the task out.

    If the process stops, release the claim. If the claim is lost or climate does not answer, log
    this and do nothing more.
    """
    node, noun = claim.task.node, claim.task.noun
    try:
        claim.acquire()
        LOG.info("claimed %s for %s", node, noun)
        action()
    except ClaimLost as reason:
        LOG.info("stopped work on %s: %s", node, reason)
    except ApiUnavailable as reason:
        LOG.warning("stopped work on %s, because climate does not answer: %s", node, reason)
    except Stopped:
        claim.release()
