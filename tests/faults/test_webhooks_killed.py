"""Managers are killed while they deliver webhooks: each receiver gets all, in order."""

from functools import partial
from pathlib import Path

import pytest

from tests.support.process import (
    Program,
    Service,
    date,
    eventually,
    free_port,
    running,
    write_config,
)
from tests.support.receiver import SECRET, Receiver, receiving

pytestmark = pytest.mark.faults

ROUNDS = 3
NIGHTLY = pytest.mark.nightly(reason="PostgreSQL and the matrix of faults cover the same in CI")
LEASES = 8


def _has_more(receiver: Receiver, seen: int) -> bool:
    return len(receiver.got) > seen


def _has_all(receiver: Receiver, expected: list[int]) -> bool:
    return set(receiver.seqs) == set(expected)


@pytest.mark.parametrize(
    "backend", ["postgresql", pytest.param("mariadb", marks=NIGHTLY)], indirect=True
)
def test_killed_managers_lose_no_delivery(database_url: str, tmp_path: Path) -> None:
    conf = write_config(
        tmp_path / "climate.conf",
        database__connection=database_url,
        simulated__journal=tmp_path / "cloud",
        manager__poll_interval=0.1,
        manager__claim_timeout=1,
        notifications__webhook_networks="127.0.0.0/8",
        notifications__webhook_http=True,
        notifications__webhook_timeout=1,
    )
    given = f"--config-file={conf}"
    service = Service(free_port())
    with (
        receiving() as first,
        receiving() as second,
        running(tmp_path, "climate-api", given, "--port", str(service.port)) as api,
    ):
        api.says("climate is ready at")
        for receiver in (first, second):
            service.ok("POST", "/v2/subscriptions", {"url": receiver.url, "secret": SECRET})
        managers = [Program(tmp_path, "climate-manager", given) for _ in range(2)]
        try:
            for round_ in range(ROUNDS):
                for number in range(LEASES):
                    body = {"name": "far", "start_date": date(600 + number), "end_date": date(9999)}
                    service.ok("POST", "/v1/leases", {**body, "reservations": []})
                eventually(partial(_has_more, first, round_ * LEASES), "it is delivered")
                managers[round_ % 2].kill()
                managers[round_ % 2] = Program(tmp_path, "climate-manager", given)
            expected = list(range(1, ROUNDS * LEASES + 1))
            for receiver in (first, second):
                eventually(partial(_has_all, receiver, expected), "all was delivered")
        finally:
            for manager in managers:
                manager.kill()
        for receiver in (first, second):
            assert list(dict.fromkeys(receiver.seqs)) == expected
            ids = {event["id"] for event in receiver.events}
            assert len(ids) == len(expected)
            assert len(receiver.got) - len(expected) <= ROUNDS  # one for each kill at most
