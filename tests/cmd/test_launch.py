"""Settings of the process before the service starts."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from climate.cmd import launch


@pytest.fixture
def settled() -> Iterator[None]:
    """Settle this process, and undo it after the test."""
    before = gc.get_threshold()
    launch.settle()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@contextmanager
def collections() -> Iterator[list[str]]:
    """Note the phases of garbage collections."""
    phases: list[str] = []
    gc.callbacks.append(lambda phase, _: phases.append(phase))
    try:
        yield phases
    finally:
        del gc.callbacks[-1]


@pytest.mark.usefixtures("settled")
def test_a_batch_triggers_no_garbage_collection_but_real_garbage_does() -> None:
    with collections() as phases:
        batch: list[list[int]] = [[] for _ in range(40_000)]
    assert len(batch) == 40_000
    assert phases == []
    del batch
    with collections() as phases:
        for _ in range(60_000):
            ring: list[object] = []
            ring.append(ring)
    assert phases
