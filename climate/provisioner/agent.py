"""The provisioner's main loop: it polls climate's API for tasks and runs them.

A task powers a host (node) on before a lease and checks it, or shuts an idle host down. The
provisioner runs only tasks for nodes in its nodes file. Each task runs in a thread of its own, and
the number of threads is limited. Several provisioners can have the same nodes: a claim in climate's
database gives each task to only one provisioner.
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
from climate.provisioner.claim import Claim, run_claimed
from climate.provisioner.client import PREPARATIONS, SHUTDOWNS, ApiUnavailable, NodeTask
from climate.provisioner.nodes import InvalidNodeConfig, Node
from climate.provisioner.prepare import Tools, prepare
from climate.provisioner.shut_down import shut_down

LOG = logging.getLogger(__name__)

# Seconds that one request waits for tasks (long polling). The process cannot stop meanwhile.
_LONG_POLL = 5
# Seconds to wait at a stop until the threads have released their claims.
_GRACE = 30.0


class Provisioner:
    """Polls climate for tasks (preparations and shutdowns), and runs them in threads."""

    def __init__(
        self,
        tools: Tools,
        file: Path,
        workers: int,
        claim_timeout: int,
        shutdown_pause: float,
    ) -> None:
        """Read the nodes file ``file``, the operator's list of hosts.

        ``tools`` contains the API client and the power drivers. At most ``workers`` tasks run at
        the same time. A claim on a task expires after ``claim_timeout`` seconds; the provisioner
        renews it until the task is done. Two queries for shutdowns are at least ``shutdown_pause``
        seconds apart. Raises InvalidNodeConfig if the file cannot be read or is invalid.
        """
        self._tools = tools
        self._file = file
        self._workers, self._claim_timeout = workers, claim_timeout
        self._shutdown_pause, self._shutdowns_at = shutdown_pause, 0.0
        # Unique to this process.
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._running: dict[str, threading.Thread] = {}
        self._stopping = threading.Event()
        self.wake = threading.Event()
        self._read_at = -1.0
        # The nodes of tasks that are not in the nodes file, each logged once.
        self._foreign: set[str] = set()
        #: The nodes of the file by name.
        self.nodes = self._read()

    def run(self, stopping: threading.Event, pause: float) -> None:
        """Poll and run tasks until ``stopping`` is set; then release the claims of running tasks.

        Two polls begin at least ``pause`` seconds apart, except if ``wake`` is set.
        """
        LOG.info("%s provisions %s node(s)", self._owner, len(self.nodes))
        self._stopping = stopping  # so that tasks stop even during a long poll
        while not stopping.is_set():
            waited = 0.0
            try:
                waited = self.poll()
            except ApiUnavailable as error:
                LOG.warning("cannot get tasks from climate: %s", error)
            except Exception:
                LOG.exception("cannot get tasks from climate")
            self._wait(pause - waited)
        until = time.monotonic() + _GRACE
        for thread in self._running.values():
            thread.join(max(until - time.monotonic(), 0.0))

    def poll(self) -> float:
        """Query climate for tasks, and start a thread for each task while workers are free.

        If there are no tasks, the request waits for one (long polling). Returns how many seconds
        the request waited; 0 if there were tasks. Raises ApiUnavailable if climate's API does not
        answer or reports an error.
        """
        self.nodes = self._reread()
        self._running = {id_: thread for id_, thread in self._running.items() if thread.is_alive()}
        now = time.monotonic()
        if now >= self._shutdowns_at:  # preparations first: a lease waits for them
            self._shutdowns_at = now + self._shutdown_pause
            if self._start_tasks(PREPARATIONS) | self._start_tasks(SHUTDOWNS):
                return 0.0
        return 0.0 if self._start_tasks(PREPARATIONS, _LONG_POLL) else time.monotonic() - now

    def _start_tasks(self, noun: str, wait: int = 0) -> bool:
        """Start tasks while workers are free; return whether climate has returned any task.

        ``noun`` is the kind of the tasks: ``preparations`` or ``shutdowns``. If there is no task,
        the request waits up to ``wait`` seconds for one.
        """
        is_idle = True
        for task in self._tools.climate.claimable(noun, wait):
            is_idle = False
            if len(self._running) >= self._workers or self._stopping.is_set():
                break
            if task.node not in self.nodes:
                self._note_foreign(task)
            elif task.id not in self._running:
                self._start(task)
        return not is_idle

    def _note_foreign(self, task: NodeTask) -> None:
        """Log a task of a node that is not in the nodes file, once for each node.

        Another provisioner may have the node, so this is no error.
        """
        if task.node not in self._foreign:
            self._foreign.add(task.node)
            LOG.info(
                "climate has %s of %s, but %s has no such node: another provisioner must have it",
                task.noun,
                task.node,
                self._file,
            )

    def _wait(self, seconds: float) -> None:
        """Wait up to ``seconds``, or until ``wake`` or ``_stopping`` is set."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._stopping.is_set():
            if self.wake.wait(min(0.2, seconds)):
                self.wake.clear()
                return

    def _start(self, task: NodeTask) -> None:
        claim = Claim(self._tools.climate, task, self._owner, self._claim_timeout, self._stopping)
        node = self.nodes[task.node]
        thread = threading.Thread(
            target=self._run_task, args=(node, claim), name=node.name, daemon=True
        )
        thread.start()
        self._running[task.id] = thread

    def _run_task(self, node: Node, claim: Claim) -> None:
        try:
            action = shut_down if claim.task.noun == SHUTDOWNS else prepare
            run_claimed(claim, partial(action, self._tools, node, claim))
        except Exception:
            LOG.exception(
                "the task for %s failed, a provisioner repeats it when its claim expires",
                node.name,
            )

    def _reread(self) -> Mapping[str, Node]:
        """Return the nodes of the nodes file; read it again if it has changed.

        If the changed file is invalid, keep the previous nodes.
        """
        try:
            return self._read() if self._file.stat().st_mtime != self._read_at else self.nodes
        except (OSError, InvalidNodeConfig) as error:
            LOG.warning(
                "the changed file of nodes is invalid, the previous nodes remain in use: %s", error
            )
            return self.nodes

    def _read(self) -> Mapping[str, Node]:
        try:
            read_at = self._file.stat().st_mtime
        except OSError as error:
            raise InvalidNodeConfig(f"{self._file}: {error.strerror}") from None
        read_nodes = nodes.read(self._file)
        drivers = {node.driver for node in read_nodes.values()}
        if unknown := drivers - self._tools.drivers.keys():
            raise InvalidNodeConfig(
                f"{self._file}: unknown driver {', '.join(sorted(unknown))}:"
                f" use one of {', '.join(sorted(self._tools.drivers))}"
            )
        self._read_at = read_at
        self._foreign.clear()
        return read_nodes
