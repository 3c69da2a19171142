"""Managers are killed while they publish to RabbitMQ: nothing is lost, in order."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from climate.db.notifications import outbox
from climate.manager.leases.delete import delete_lease
from climate.manager.process.runtime import Runtime
from tests.support import broker, servers
from tests.support.broker import configure, prepared, reserve
from tests.support.process import Program, eventually, write_config

pytestmark = pytest.mark.faults

LEASES = 10
ROUNDS = 3
NIGHTLY = pytest.mark.nightly(reason="PostgreSQL and the matrix of faults cover the same in CI")
MANAGERS = 3


@pytest.fixture
def runtime(database_url: str, topic: str) -> Iterator[Runtime]:
    """Return a runtime that creates leases in this process."""
    with prepared(configure(database_url, topic, servers.RABBITMQ)) as made:
        yield made


@pytest.mark.parametrize(
    "backend", ["postgresql", pytest.param("mariadb", marks=NIGHTLY)], indirect=True
)
def test_relays_that_are_killed_lose_nothing_and_keep_the_order(
    runtime: Runtime, database_url: str, topic: str, tmp_path: Path
) -> None:
    conf = write_config(
        tmp_path / "climate.conf",
        database__connection=database_url,
        notifications__transport_url=servers.RABBITMQ,
        notifications__topics=topic,
        manager__poll_interval=0.1,
        manager__claim_timeout=1,
        simulated__journal=tmp_path / "cloud",
    )
    luck = random.Random(6)  # noqa: S311 - not for secrets
    started = [Program(tmp_path, "climate-manager", f"--config-file={conf}") for _ in "123"]
    messages: list[dict[str, Any]] = []
    try:
        for round_ in range(ROUNDS):
            made = [reserve(runtime, 3600.0 * (2 + n), 60) for n in range(LEASES)]
            for lease in made:
                delete_lease(runtime, lease.id)
            eventually(lambda: broker.depth(topic) > 0, f"round {round_} is being published")
            victim = luck.randrange(MANAGERS)
            started[victim].kill()
            started[victim] = Program(tmp_path, "climate-manager", f"--config-file={conf}")
            messages += broker.take(topic)
        eventually(lambda: not has_unpublished(runtime), "all is published")
    finally:
        for program in started:
            program.kill()
    check(messages + broker.take(topic), 2 * LEASES * ROUNDS)


def has_unpublished(runtime: Runtime) -> bool:
    """Return whether a notification still waits for the broker."""
    with runtime.database.read() as session:
        return outbox.is_unnumbered(session) or bool(outbox.unpublished(session, 1))


def check(messages: list[dict[str, Any]], count: int) -> None:
    """Check that all messages arrived in the order of their leases; repeats have equal ids."""
    ids: dict[str, dict[str, Any]] = {}
    for message in messages:
        assert ids.setdefault(message["message_id"], message["payload"]) == message["payload"]
    assert [payload["seq"] for payload in ids.values()] == list(range(1, count + 1))
    types_by_lease: dict[str, list[str]] = {}
    for message in messages:
        types_by_lease.setdefault(message["payload"]["lease_id"], []).append(message["event_type"])
    for types in types_by_lease.values():
        assert list(dict.fromkeys(types)) == ["lease.create", "lease.delete"]
