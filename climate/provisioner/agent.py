"""Which nodes this process gets ready: those of its file that somebody wants, a bounded number.

Any number of such processes may look at the same nodes; claims keep them apart.
"""

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from climate.provisioner import nodes
from climate.provisioner.claim import Claim, work
from climate.provisioner.client import PREPARATIONS, SHUTDOWNS, ApiUnavailable, NodeTask
from climate.provisioner.nodes import InvalidNodeConfig, Node
from climate.provisioner.prepare import Tools, prepare
from climate.provisioner.shut_down import shut_down

LOG = logging.getLogger(__name__)

# Seconds to wait for what is wanted in one question; the process does not end meanwhile.
_PATIENCE = 5
# Seconds that nodes under way may take to be handed back.
_GRACE = 30.0


def owner_name() -> str:
    """Return a name for this process that no other, and no later one, has."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


class Provisioner:
    """Looks at what is wanted, and does it in threads of its own."""

    def __init__(
        self,
        tools: Tools,
        file: Path,
        workers: int,
        claim_timeout: int,
        shutdown_pause: float,
    ) -> None:
        """Read the file of nodes; raises BadNodes.

        It looks for shutdowns every ``shutdown_pause`` seconds at the most.
        """
        self._tools = tools
        self._file = file
        self._workers, self._claim_timeout = workers, claim_timeout
        self._shutdown_pause, self._shutdowns_at = shutdown_pause, 0.0
        self._owner = owner_name()
        self._running: dict[str, threading.Thread] = {}
        self._stopping = threading.Event()
        self.wake = threading.Event()
        self._read_at = -1.0
        self._nodes = self._read()

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes that it can get ready."""
        return self._nodes

    def run(self, stopping: threading.Event, pause: float) -> None:
        """Work until it is to stop; then hand back what is under way."""
        LOG.info("%s can get %s node(s) ready", self._owner, len(self._nodes))
        self._stopping = stopping  # what is under way is handed back even while we wait for more
        while not stopping.is_set():
            waited = 0.0
            try:
                waited = self.look()
            except ApiUnavailable as error:
                LOG.warning("climate does not answer: %s", error)
            except Exception:
                LOG.exception("what is wanted was not looked at")
            self._wait(stopping, pause - waited)
        self._stop()

    def look(self) -> float:
        """Begin what is wanted, as far as workers are free. Raises NotAnswered.

        Return for how many seconds was waited in vain; what is there already may not be ours.
        """
        self._nodes = self._reread()
        self._running = {id_: one for id_, one in self._running.items() if one.is_alive()}
        now = time.monotonic()
        if now >= self._shutdowns_at:  # what is needed goes before what is not
            self._shutdowns_at = now + self._shutdown_pause
            if self._take(PREPARATIONS) | self._take(SHUTDOWNS):
                return 0.0
        return 0.0 if self._take(PREPARATIONS, _PATIENCE) else time.monotonic() - now

    def _take(self, noun: str, wait: int = 0) -> bool:
        """Begin what is wanted, as far as workers are free; return whether there is anything."""
        is_idle = True
        for one in self._tools.climate.claimable(noun, wait):
            is_idle = False
            if len(self._running) >= self._workers or self._stopping.is_set():
                break
            if one.node in self._nodes and one.id not in self._running:
                self._begin(one)
        return not is_idle

    def _wait(self, stopping: threading.Event, seconds: float) -> None:
        """Wait for so long at most, less if there is a hint."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not stopping.is_set():
            if self.wake.wait(min(0.2, seconds)):
                self.wake.clear()
                return

    def _begin(self, wanted: NodeTask) -> None:
        claim = Claim(self._tools.climate, wanted, self._owner, self._claim_timeout, self._stopping)
        node = self._nodes[wanted.node]
        thread = threading.Thread(
            target=self._guarded, args=(node, claim), name=node.name, daemon=True
        )
        self._running[wanted.id] = thread
        thread.start()

    def _guarded(self, node: Node, claim: Claim) -> None:
        try:
            task = shut_down if claim.wanted.noun == SHUTDOWNS else prepare
            work(claim, partial(task, self._tools, node, claim))
        except Exception:
            LOG.exception("%s is left alone, its claim will expire", node.name)

    def _stop(self) -> None:
        self._stopping.set()
        until = time.monotonic() + _GRACE
        for thread in self._running.values():
            thread.join(max(until - time.monotonic(), 0.0))

    def _reread(self) -> Mapping[str, Node]:
        """Return the nodes, read again if the file has changed; as before if it is bad now."""
        try:
            return self._read() if self._file.stat().st_mtime != self._read_at else self._nodes
        except (OSError, InvalidNodeConfig) as error:
            LOG.warning("the nodes are as before: %s", error)
            return self._nodes

    def _read(self) -> Mapping[str, Node]:
        try:
            read_at = self._file.stat().st_mtime
        except OSError as error:
            raise InvalidNodeConfig(f"{self._file}: {error.strerror}") from None
        found = nodes.read(self._file)
        if unknown := {one.driver for one in found.values()} - self._tools.drivers.keys():
            raise InvalidNodeConfig(
                f"{self._file}: no driver is called {', '.join(sorted(unknown))}"
            )
        self._read_at = read_at
        return found
