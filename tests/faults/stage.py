"""A folder through which a test holds managers at a step, and changes their cloud and clocks.

The test writes to its files where managers must wait, that plugins are slow or fail, and how far
wall clocks are off. Managers that called ``take_part`` read the files at every step. So a fault
occurs during a phase: for some leases before a step, for others after it. All other code of a
manager is as shipped.
"""

import json
import os
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any

from climate.core.lease.schedule import BEFORE_START, START
from climate.core.notifications.message import Notification
from climate.manager.notifications import lease_messages as announcements
from climate.manager.notifications.lease_messages import News
from climate.notifications.emit import MessagingEmitter
from climate.plugins.hosts.simulated import SimulatedCloud
from climate.plugins.simulated_journal import SimulatedFailure

_PAUSE = 0.02


class Moment(StrEnum):
    """The phases of a lease in which managers are held, in order."""

    HEADS_UP = "heads-up"
    START = "start"
    BEFORE_END = "before-end"
    END = "end"
    RELAY = "relay"


# Where a manager can be held: so many places in each moment. A lease is held in one of them.
STEPS = {
    Moment.HEADS_UP: 2,  # in the transaction, before and after the notification is written
    Moment.START: 3,  # before the pool is there, before the host is in it, after that
    Moment.BEFORE_END: 2,  # before and after the image is made
    Moment.END: 3,  # before the host is taken back, before the pool is removed, after that
    Moment.RELAY: 2,  # before and after a start is published
}
# The steps before and after the effects of the simulated cloud.
_BEFORE = {
    "ensure_pool": (Moment.START, 0),
    "add_host": (Moment.START, 1),
    "snapshot": (Moment.BEFORE_END, 0),
    "remove_host": (Moment.END, 0),
    "delete_pool": (Moment.END, 1),
}
_AFTER = {
    "add_host": (Moment.START, 2),
    "snapshot": (Moment.BEFORE_END, 1),
    "delete_pool": (Moment.END, 2),
}


class Stage:
    """The folder, for the test and for the managers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    # The test's side.

    def hold(self, moment: Moment, step: int | None = None) -> None:
        """Hold managers in ``moment``, at this step or each lease at one of the steps."""
        self._write("hold", [moment, step])

    def release(self) -> None:
        """Release all managers, also those that would be held later."""
        self._remove("hold")

    def held(self) -> Counter[int]:
        """Return how many threads are held, by process."""
        return Counter(int(mark.name.split("-")[1]) for mark in self.folder.glob("held-*"))

    def slow(self, seconds: float) -> None:
        """Delay each change of the cloud by ``seconds``; 0: no delay."""
        self._write("slow", seconds)

    def fail(self, *, failing: bool) -> None:
        """Let each change of the cloud fail, or succeed again."""
        self._write("fail", failing)

    def done(self) -> dict[str, datetime]:
        """Return the time of the first occurrence of each effect, by EFFECT POOL."""
        found: dict[str, datetime] = {}
        path = self.folder / "done"
        for line in path.read_text().splitlines() if path.exists() else []:
            moment, _, effect = line.partition(" ")
            found.setdefault(effect, datetime.fromisoformat(moment))
        return found

    def step_clock(self, pid: int, seconds: float) -> None:
        """Shift the wall clock of a process by ``seconds``."""
        self._write("clock", {**self._read("clock", {}), str(pid): seconds})

    def _write(self, name: str, value: object) -> None:
        new = self.folder / f"{name}.new"
        new.write_text(json.dumps(value))
        new.replace(self.folder / name)

    def _remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    # The managers' side.

    def _read(self, name: str, default: Any) -> Any:
        try:
            return json.loads((self.folder / name).read_text())
        except FileNotFoundError:
            return default

    def reach(self, moment: Moment, step: int, what: str) -> None:
        """Wait here while ``what`` is held at this step."""
        if not self._holds(moment, step, what):
            return
        mark = self.folder / f"held-{os.getpid()}-{threading.get_ident()}"
        mark.touch()
        while self._holds(moment, step, what):
            time.sleep(_PAUSE)
        mark.unlink()

    def _holds(self, moment: Moment, step: int, what: str) -> bool:
        wanted, at = self._read("hold", (None, None))
        if wanted != moment:
            return False
        return step == (zlib.crc32(what.encode()) % STEPS[moment] if at is None else at)

    @contextmanager
    def changing(self, effect: str, what: str) -> Iterator[None]:
        """Run an effect of the cloud: hold it before or after, delay it, or let it fail."""
        if effect in _BEFORE:
            self.reach(*_BEFORE[effect], what)
        time.sleep(self._read("slow", 0))
        if self._read("fail", default=False):
            raise SimulatedFailure(f"the cloud refuses {effect}")
        yield
        with (self.folder / "done").open("a", encoding="utf-8") as done:
            done.write(f"{datetime.now(UTC).isoformat()} {effect} {what}\n")
        if effect in _AFTER:
            self.reach(*_AFTER[effect], what)

    def wall(self, zone: tzinfo | None = None) -> datetime:
        """Return the time of this process's wall clock."""
        off = self._read("clock", {}).get(str(os.getpid()), 0)
        return datetime.now(zone) + timedelta(seconds=off)


def take_part(folder: Path) -> None:
    """Make this process read the folder from now on."""
    stage = Stage(folder)
    _wrap(SimulatedCloud, "act", lambda act: _acting(stage, act))
    for module in _importers("announce", announcements.announce):
        _wrap(module, "announce", lambda announce: _announcing(stage, announce))
    _wrap(MessagingEmitter, "publish", lambda publish: _publishing(stage, publish))
    _replace_clock(stage)


def _importers(name: str, what: object) -> list[ModuleType]:
    """Return the modules of climate that imported ``what``."""
    ours = [module for path, module in sys.modules.items() if path.startswith("climate.")]
    return [module for module in ours if getattr(module, name, None) is what]


def _wrap(owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
    setattr(owner, name, wrapper(getattr(owner, name)))


def _acting(stage: Stage, act: Callable[..., None]) -> Callable[..., None]:
    def acting(cloud: SimulatedCloud, name: str, **details: str) -> None:
        with stage.changing(name, details.get("pool") or details["host"]):
            act(cloud, name, **details)

    return acting


def _announcing(stage: Stage, announce: Callable[..., None]) -> Callable[..., None]:
    def announcing(session: Any, news: Sequence[News], now: datetime) -> None:
        lease_ids = [item.lease.id for item in news if item.kind == BEFORE_START]
        for lease_id in lease_ids:
            stage.reach(Moment.HEADS_UP, 0, lease_id)
        announce(session, news, now)
        for lease_id in lease_ids:
            stage.reach(Moment.HEADS_UP, 1, lease_id)

    return announcing


def _publishing(stage: Stage, publish: Callable[..., None]) -> Callable[..., None]:
    def publishing(
        emitter: MessagingEmitter, notification: Notification, payload: Mapping[str, Any]
    ) -> None:
        at = notification.event_type == f"lease.event.{START}"
        lease_id = notification.lease_id if at else None
        if lease_id is not None:
            stage.reach(Moment.RELAY, 0, lease_id)
        publish(emitter, notification, payload)
        if lease_id is not None:
            stage.reach(Moment.RELAY, 1, lease_id)

    return publishing


def _replace_clock(stage: Stage) -> None:
    """Replace climate's clock and the timer's by the stage's.

    Only wall clocks: monotonic clocks continue, as when an operator sets the clock.
    """

    class Kind(type(datetime)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, datetime)

    class Wall(datetime, metaclass=Kind):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return stage.wall(tz)

    for name, module in list(sys.modules.items()):
        is_ours = name.startswith(("climate.", "apscheduler."))
        if is_ours and getattr(module, "datetime", None) is datetime:
            module.datetime = Wall  # type: ignore[attr-defined]
    real = time.time
    time.time = lambda: real() + stage._read("clock", {}).get(str(os.getpid()), 0)
