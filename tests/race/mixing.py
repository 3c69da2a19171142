"""What each process of a crowd does with hosts, shares of the same hosts, and pools."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy.orm import Session

from climate.core.lease.model import Lease
from climate.db.engine.database import Database
from climate.manager.admission import admission
from climate.manager.leases.delete import delete_lease
from climate.manager.process.runtime import Runtime
from tests.conftest import NOON
from tests.race.booking import count_outcome
from tests.race.crowd import wait_for_all
from tests.race.engine import kinds
from tests.race.engine.requests import Want, addresses, change, hosts, instances, reserve
from tests.support.clock import ManualClock

Outcomes = Counter[str]
ADMITTED, AGAIN = "admitted", "again"
# The request of all processes in a hotspot.
SHARES: dict[str, Want] = {
    "addresses": addresses(7),
    "instances": instances(vcpus=2),
    "gpus": instances(gpus=1),
    "together": instances(2, vcpus=1, layout="together"),
    "apart": instances(2, vcpus=1, layout="apart"),
}


@contextmanager
def at_work(url: str) -> Iterator[Runtime]:
    runtime = kinds.make_runtime(url, ManualClock(NOON))
    wait_for_all()
    yield runtime
    runtime.close()


def mix(number: int, url: str, count: int, removed: str = "") -> Outcomes:
    """Create leases of all types, change them and delete some."""
    dice = random.Random(number)  # noqa: S311 - the same wishes in each run
    outcomes: Outcomes = Counter()
    mine: list[Lease] = []
    with _counting(outcomes), _without_second_checks(removed), at_work(url) as runtime:
        for _ in range(count):
            step = dice.choice(["ask", "ask", "move", "resize", "delete"]) if mine else "ask"
            with count_outcome(
                outcomes, {"ask": ADMITTED, "delete": "deleted"}.get(step, "changed")
            ):
                _take(dice, runtime, mine, step)
    return outcomes


def _take(dice: random.Random, runtime: Runtime, mine: list[Lease], step: str) -> None:
    start = dice.randrange(1, 8)
    if step == "ask":
        wants = [_any(dice) for _ in range(dice.choice([1, 1, 2, 3]))]
        mine.append(reserve(runtime, *wants, start=start, hours=dice.randint(1, 4)))
    elif step == "move":
        change(runtime, dice.choice(mine), start=start, end=start + dice.randint(1, 4))
    elif step == "resize":
        low = dice.randint(1, 3)
        change(runtime, dice.choice(mine), min=low, max=low + dice.randint(0, 2))
    else:
        delete_lease(runtime, mine.pop(dice.randrange(len(mine))).id)


def _any(dice: random.Random) -> Want:
    low, more = dice.choice([1, 1, 2]), dice.choice([0, 0, 1])
    layout = dice.choice(["anywhere", "together", "apart"])
    return dice.choice(
        [
            hosts(low, low + more, query=dice.choice(["", '["==", "$rack", "a"]'])),
            instances(low, low + more, vcpus=dice.choice([1, 3, 4]), layout=layout),
            instances(low, low + more, vcpus=1, layout=layout, exclusive=True),
            instances(low, vcpus=1, memory_mb=1024, gpus=1),
            addresses(low * 100, low * 100 + more * 50),
        ]
    )


def same_share(_number: int, url: str, count: int, kind: str, removed: str = "") -> Outcomes:
    """Create the same share again and again in one window."""
    outcomes: Outcomes = Counter()
    with _counting(outcomes), _without_second_checks(removed), at_work(url) as runtime:
        for _ in range(count):
            with count_outcome(outcomes, ADMITTED):
                reserve(runtime, SHARES[kind])
    return outcomes


@contextmanager
def _counting(outcomes: Outcomes) -> Iterator[None]:
    """Count how often a transaction is repeated."""
    once = Database._write_once

    def counted(self: Database, work: Callable[[Session], Any], attempt: int) -> Any:
        outcomes[AGAIN] += attempt > 1
        return once(self, work, attempt)

    Database._write_once = counted  # type: ignore[method-assign]
    try:
        yield
    finally:
        Database._write_once = once  # type: ignore[method-assign]


@contextmanager
def _without_second_checks(removed: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if removed:
            patch.setattr(admission, "is_still_free", lambda *_: True)
            patch.setattr(admission, "leaves_enough", lambda *_: True)
        yield
