"""What a process does with itself before a long life."""

import gc
from collections.abc import Iterator

import pytest

from climate import service


@pytest.fixture
def settled() -> Iterator[None]:
    """Have this process settle, for a while."""
    before = gc.get_threshold()
    service.settle()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.usefixtures("settled")
def test_what_a_batch_makes_is_not_looked_through_for_garbage() -> None:
    looks: list[str] = []
    gc.callbacks.append(lambda phase, _: looks.append(phase))
    try:
        made: list[list[int]] = [[] for _ in range(40_000)]
    finally:
        del gc.callbacks[-1]
    assert len(made) == 40_000
    assert looks == []


@pytest.mark.usefixtures("settled")
def test_garbage_is_found_all_the_same() -> None:
    looks: list[str] = []
    gc.callbacks.append(lambda phase, _: looks.append(phase))
    try:
        for _ in range(60_000):
            ring: list[object] = []
            ring.append(ring)
    finally:
        del gc.callbacks[-1]
    assert looks
