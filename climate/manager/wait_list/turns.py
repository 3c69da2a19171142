"""Turns: one process at a time places the leases of a pool, so that their order is kept.

Nothing depends on the turn for safety. It expires, because its owner may have died.
"""

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from climate.db.leases import waits
from climate.manager.process.runtime import Runtime

# How long a process keeps the turn without renewing it. A placement takes milliseconds.
_TURN = timedelta(seconds=30)


@dataclass(slots=True)
class Turn:
    """The turn of ``owner`` to place the leases of a pool until ``until``.

    If ``deadline`` is set, its owner stops at that reading of the monotonic clock.
    """

    runtime: Runtime
    pool: str
    owner: str
    until: datetime
    deadline: float | None

    def goes_on(self) -> bool:
        """Return whether the owner may place one more lease; renew the turn from time to time."""
        if self.is_overdue:
            return False
        now = self.runtime.clock.now()
        if now < self.until - _TURN / 2:
            return True
        self.until = now + _TURN
        return self.runtime.database.write(
            lambda session: waits.keep_turn(session, self.pool, self.owner, self.until)
        )

    @property
    def is_overdue(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and self.runtime.clock.elapsed() >= self.deadline

    def leave(self, *, even_if_wanted: bool = False) -> bool:
        """Give the turn back; return whether the owner has no turn any more.

        If another process wants the pool to be looked at again, the owner keeps the turn, unless
        ``even_if_wanted`` is set.
        """
        return self.runtime.database.write(
            lambda session: waits.leave_turn(
                session, self.pool, self.owner, even_if_wanted=even_if_wanted
            )
        )


def take_turn(runtime: Runtime, pool: str, patience: timedelta | None = None) -> Turn | None:
    """Take the turn for a pool; return None if another process has it.

    That process then looks at the pool once more. The owner stops after ``patience`` (None: when
    there is nothing left to do).
    """
    now = runtime.clock.now()
    deadline = None if patience is None else runtime.clock.elapsed() + patience.total_seconds()
    turn = Turn(runtime, pool, uuid.uuid4().hex, now + _TURN, deadline)
    is_mine = runtime.database.write(
        lambda session: waits.take_turn(session, pool, turn.owner, now, turn.until)
    )
    return turn if is_mine else None
