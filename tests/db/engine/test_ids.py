"""New ids are UUIDs in the order of their creation."""

import os
import uuid
from types import SimpleNamespace

import pytest

from climate.db.engine import ids

NOON = 1_894_708_800_000_000_000  # ns since the epoch


@pytest.fixture
def ids_at(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return the clock of new ids; ``now`` is its time in nanoseconds."""
    clock = SimpleNamespace(now=NOON)
    monkeypatch.setattr(ids, "time", SimpleNamespace(time_ns=lambda: clock.now))
    return clock


def test_an_id_is_a_uuid_of_version_7() -> None:
    new = uuid.UUID(ids.new_id())
    assert (new.version, new.variant) == (7, uuid.RFC_4122)


def test_an_id_begins_with_the_millisecond_of_its_creation(ids_at: SimpleNamespace) -> None:
    assert uuid.UUID(ids.new_id()).int >> 80 == NOON // 1_000_000


def test_ids_are_in_the_order_of_their_creation(ids_at: SimpleNamespace) -> None:
    new = []
    for _ in range(5_000):
        new.append(ids.new_id())
        ids_at.now += 245  # ids less than 244 ns apart have no order
    assert new == sorted(new)


def test_ids_of_the_same_instant_are_unique(ids_at: SimpleNamespace) -> None:
    assert len({ids.new_id() for _ in range(10_000)}) == 10_000


@pytest.mark.filterwarnings("ignore:Using fork:DeprecationWarning")
def test_a_forked_process_makes_other_ids() -> None:
    ids.new_id()  # fetches random numbers in advance
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, str(ids._random_number()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(reader, 100)) != ids._random_number()
    os.close(reader)
    os.close(writer)
