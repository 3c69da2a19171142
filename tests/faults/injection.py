"""The faults: each comes while managers are held, lets them go on, and is over when it returns."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.faults.cell import CLAIM, Cell
from tests.faults.ground import DiskDatabase, ServerDatabase
from tests.faults.stage import Moment

# Seconds: that a server is away, that the cloud is slow or fails, by which clocks are off.
_AWAY, _UNREACHABLE, _TROUBLE, _STEP = 5.0, 30.0, 5.0, 3600.0
# Seconds for which a manager that is paused in a transaction keeps its locks.
_LOCKED = 30.0
# Seconds by which a change of a slow cloud is late: longer than a claim lasts if not extended.
_SLOW = CLAIM + 1.5


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, and the seconds that leases get until it is over.

    With ``first``, managers are held at the first step of a moment: the last at which a fence can
    help.
    """

    name: str
    inject: Callable[[Cell], None]
    lasts: float
    databases: tuple[str, ...] = ("postgresql", "mariadb")
    first: bool = False


def _kill(cell: Cell) -> None:
    """`SIGKILL` to a manager that is held; the two others go on."""
    cell.victim().kill()
    cell.stage.release()


def _pause(cell: Cell) -> None:
    """`SIGSTOP` to a manager that is held, and `SIGCONT` when all leases are over."""
    asleep = cell.victim()
    asleep.freeze()
    cell.stage.release()
    cell.wait_until_over()
    asleep.signal(signal.SIGCONT)
    time.sleep(CLAIM)


def _restart_database(cell: Cell) -> None:
    """The server ends without a checkpoint, and is started again."""
    assert isinstance(cell.ground, ServerDatabase)
    cell.ground.server.crash()
    cell.stage.release()
    cell.ground.server.start()


def _cut_database(cell: Cell) -> None:
    """No manager reaches the server for 30 seconds: connections break, new ones fail."""
    cell.way_to_database.cut()
    cell.stage.release()
    time.sleep(_UNREACHABLE)
    cell.way_to_database.mend()


def _restart_broker(cell: Cell) -> None:
    """The broker is killed, and is started again."""
    cell.broker.crash()
    cell.stage.release()
    cell.broker.start()


def _cut_broker(cell: Cell) -> None:
    """No manager reaches the broker for 5 seconds."""
    cell.way_to_broker.cut()
    cell.stage.release()
    time.sleep(_AWAY)
    cell.way_to_broker.mend()


def _fill_disk(cell: Cell) -> None:
    """The disk with the database has no byte free for 5 seconds."""
    assert isinstance(cell.ground, DiskDatabase)
    cell.ground.fill()
    cell.stage.release()
    time.sleep(_AWAY)
    cell.ground.empty()


def _slow_plugin(cell: Cell) -> None:
    """For 5 seconds every change of the cloud takes longer than a claim lasts."""
    cell.stage.slow(_SLOW)
    cell.stage.release()
    time.sleep(_TROUBLE)
    cell.stage.slow(0)


def _failing_plugin(cell: Cell) -> None:
    """For 5 seconds every change of the cloud fails."""
    cell.stage.fail(failing=True)
    cell.stage.release()
    time.sleep(_TROUBLE)
    cell.stage.fail(failing=False)


def _set_clock(seconds: float, cell: Cell) -> None:
    """Set the wall clock of one manager, and set it right again later."""
    pid = cell.victim().pid
    cell.stage.step_clock(pid, seconds)
    cell.stage.release()
    time.sleep(_TROUBLE)
    cell.stage.step_clock(pid, 0)


def _clock_forward(cell: Cell) -> None:
    """The clock of a manager that is held is an hour ahead for 5 seconds."""
    _set_clock(_STEP, cell)


def _clock_back(cell: Cell) -> None:
    """The clock of a manager that is held is an hour behind for 5 seconds."""
    _set_clock(-_STEP, cell)


FAULTS = [
    Fault("kill", _kill, 2 * CLAIM),
    Fault("pause", _pause, _LOCKED + 2 * CLAIM, first=True),
    Fault("database-restart", _restart_database, 2 * CLAIM + _AWAY),
    Fault("database-unreachable", _cut_database, _UNREACHABLE + 2 * CLAIM),
    Fault("broker-restart", _restart_broker, 0),
    Fault("broker-unreachable", _cut_broker, 0),
    Fault("slow-plugin", _slow_plugin, _TROUBLE + 2 * _SLOW),
    Fault("failing-plugin", _failing_plugin, 2 * _TROUBLE),
    Fault("clock-forward", _clock_forward, _TROUBLE),
    Fault("clock-back", _clock_back, _TROUBLE),
    Fault("disk-full", _fill_disk, _AWAY + 2 * CLAIM, ("sqlite",)),
]


def step(fault: Fault, moment: Moment) -> int | None:
    """Return the step at which managers are held; None: each lease at one of them.

    What the broker did not receive can be lost only before it receives it.
    """
    is_first = fault.first or (moment is Moment.RELAY and fault.name.startswith("broker"))
    return 0 if is_first else None
