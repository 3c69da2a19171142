"""Follow what users change in the cloud as soon as Heat reports it.

A notification is only a hint to look at a stack: its content decides nothing else. Whatever no
notification reports, or is not followed within the first tries, is left to the loop of
``changes_in_cloud``. Heat publishes a notification before it stores the new state of the stack, so
the first look may be too early.
"""

import logging
import threading

from climate.manager.audit.changes_in_cloud import FollowTask, follow_changes
from climate.manager.process.runtime import Runtime
from climate.plugins.stacks.notifications import changed_stack

LOG = logging.getLogger(__name__)

# Seconds between two looks; one look handles all hints since the previous one.
_PAUSE = 1.0
# How often climate looks at a stack after a hint, while the stack or its lease is busy.
_LOOKS = 30
# Further hints are ignored: whoever can publish could fill the memory.
_MOST_STACKS = 1000


class ReportedChanges(FollowTask):
    """A thread that looks at the stacks that notifications name (``hear``)."""

    def __init__(self, runtime: Runtime) -> None:
        """Prepare; the thread looks at nothing before ``start``."""
        super().__init__(
            "reported changes",
            self.look,
            interval=runtime.settings.sync_interval,
            pause=_PAUSE,
            runs_at_start=False,
        )
        self._runtime = runtime
        # By stack id: how many looks are left.
        self._waiting: dict[str, int] = {}
        self._lock = threading.Lock()
        self._malformed: set[str] = set()

    def hear(self, event_type: str, payload: object) -> None:
        """Let the thread look at the stack that a notification says to have changed, if any."""
        try:
            stack_id = changed_stack(event_type, payload)
        except ValueError as error:
            if event_type not in self._malformed:
                LOG.info("such notifications are ignored: %s", error)
                self._malformed.add(event_type)
            return
        if stack_id is None:
            return
        with self._lock:
            if stack_id not in self._waiting and len(self._waiting) >= _MOST_STACKS:
                return
            self._waiting[stack_id] = _LOOKS
        self.wake()

    def look(self) -> None:
        """Follow the changes of the stacks of running leases that were reported."""
        with self._lock:
            looks, self._waiting = self._waiting, {}
        if not looks:
            return
        left = list(looks)
        try:
            left = follow_changes(self._runtime, list(looks))
        finally:
            self._look_again({id_: looks[id_] - 1 for id_ in left if looks[id_] > 1})

    def _look_again(self, looks: dict[str, int]) -> None:
        """Let the thread look at stacks again, unless a newer hint does that already."""
        with self._lock:
            self._waiting = {**looks, **self._waiting}
            is_waiting = bool(self._waiting)
        if is_waiting:
            self.wake()
