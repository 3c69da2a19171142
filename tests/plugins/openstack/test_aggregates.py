"""Every change of an aggregate holds the lock of that aggregate; reads take no lock."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from climate.plugins.openstack.aggregates import AggregateChanges


class Cloud:
    """Has one aggregate of each name; records each change with the lock that was held."""

    def __init__(self) -> None:
        self.turn: str | None = None
        self.changes: list[tuple[str | None, str]] = []
        self.aggregates = self

    @contextmanager
    def take(self, name: str) -> Iterator[None]:
        assert self.turn is None
        self.turn = name
        yield
        self.turn = None

    def note(self, change: str) -> None:
        self.changes.append((self.turn, change))

    def create(self, name: str, zone: str | None) -> "Aggregate":
        self.note(f"create in {zone}")
        return Aggregate(self, name)


class Aggregate:
    def __init__(self, cloud: Cloud, name: str) -> None:
        self.name = name
        self.metadata = {"of": "somebody"}
        self._note = cloud.note

    def set_metadata(self, metadata: dict[str, str]) -> None:
        self._note(f"tag {metadata}")

    def add_host(self, host: str) -> None:
        self._note(f"add {host}")

    def remove_host(self, host: str) -> None:
        self._note(f"remove {host}")

    def delete(self) -> None:
        self._note("delete")


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
def changes(cloud: Cloud) -> AggregateChanges:
    nova: Any = cloud
    return AggregateChanges(nova, cloud.take)


def test_creates_and_tags_an_aggregate_under_its_lock(
    cloud: Cloud, changes: AggregateChanges
) -> None:
    changes.ensure(None, "pool", "zone", {"of": "us"})
    turn = "aggregate pool"
    assert cloud.changes == [(turn, "create in zone"), (turn, "tag {'of': 'us'}")]


def test_takes_no_lock_if_nothing_changes(cloud: Cloud, changes: AggregateChanges) -> None:
    pool = Aggregate(cloud, "pool")
    cloud.turn = "somebody else's"
    assert changes.ensure(pool, "pool", None, {"of": "somebody"}) is pool
    assert cloud.changes == []


def test_changes_and_deletes_an_aggregate_under_its_lock(
    cloud: Cloud, changes: AggregateChanges
) -> None:
    changes.join(Aggregate(cloud, "pool"), "host")
    changes.leave(Aggregate(cloud, "freepool"), "host")
    changes.delete(Aggregate(cloud, "pool"))
    assert cloud.changes == [
        ("aggregate pool", "add host"),
        ("aggregate freepool", "remove host"),
        ("aggregate pool", "delete"),
    ]
