"""``climate-listen`` prints each notification as a line of JSON until it is stopped."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support import broker, servers
from tests.support.process import (
    BIN,
    DEADLINE,
    Program,
    Service,
    date,
    environment,
    eventually,
    free_port,
    running,
)
from tests.support.proxy import Proxy

NIGHTLY = pytest.mark.nightly(reason="takes seconds for one edge of a stop or a restart")

SIGNALS = [signal.SIGTERM, signal.SIGINT]


def printed_lines(program: Program) -> list[dict[str, Any]]:
    """Return what a listener has printed, line by line."""
    return [json.loads(line) for line in program.output.splitlines()]


def has_printed(program: Program, number: int) -> bool:
    return len(printed_lines(program)) == number


def count_lines(program: Program, lease_id: str) -> int:
    """Return how many whole lines about a lease were printed."""
    lines = program.output.splitlines(keepends=True)
    return sum(f'"lease_id": "{lease_id}"' in line for line in lines if line.endswith("\n"))


def seqs(program: Program) -> list[int]:
    return [line["seq"] for line in printed_lines(program)]


def check_stops(program: Program, number: int = signal.SIGTERM) -> None:
    """Stop a listener, and check that it exits without an error."""
    program.signal(number)
    assert program.wait() == 0, program.errors
    assert "Traceback" not in program.errors
    assert program.output == "" or program.output.endswith("\n")


def announce(service: Service) -> str:
    """Create a lease without reservations, which causes one notification."""
    days = 24 * 60
    body = {"name": "far", "start_date": date(300 * days), "end_date": date(301 * days)}
    return str(service.ok("POST", "/v1/leases", {**body, "reservations": []})["lease"]["id"])


# Over HTTP.


@contextmanager
def following(home: Path, url: str, *arguments: str) -> Iterator[Program]:
    """Run a listener over HTTP."""
    with running(home, "climate-listen", "--url", url, *arguments) as program:
        yield program


@contextmanager
def standalone_at(home: Path, port: int) -> Iterator[Service]:
    database = f"sqlite:///{home}/c.sqlite"
    arguments = ("--port", str(port), "--database", database)
    with running(home, "climate-standalone", *arguments) as program:
        program.says("climate is ready at")
        yield Service(port)


def test_a_listener_prints_past_and_new_notifications(
    service: Service, lease: dict[str, Any], tmp_path: Path
) -> None:
    with following(tmp_path, service.url) as program:
        program.says(lease["id"])
        service.ok("DELETE", f"/v1/leases/{lease['id']}")
        # Others' leases were deleted before: wait for the second line about this one.
        eventually(lambda: count_lines(program, lease["id"]) == 2, "the lease's end is told")
        check_stops(program)
    mine = [line for line in printed_lines(program) if line["lease_id"] == lease["id"]]
    assert [item["event_type"] for item in mine] == ["lease.create", "lease.delete"]
    assert mine[0]["name"] == lease["name"]
    assert mine[0]["message_id"] != mine[1]["message_id"]
    assert seqs(program) == list(range(1, len(seqs(program)) + 1))


def test_a_listener_starts_after_a_given_number(
    service: Service, lease: dict[str, Any], tmp_path: Path
) -> None:
    newest = eventually(lambda: created(service, lease["id"]), "the lease is announced")
    later = announce(service)
    with following(tmp_path, service.url, "--after", str(newest)) as program:
        program.says(later)
        check_stops(program)
    assert lease["id"] not in program.output


def created(service: Service, lease_id: str) -> int:
    """Return the number of a lease's first notification, 0 if it does not exist yet."""
    found = service.ok("GET", "/v2/notifications?limit=1000")["notifications"]
    return next((item["seq"] for item in found if item["lease_id"] == lease_id), 0)


@NIGHTLY
def test_a_listener_waits_for_the_service_and_survives_its_restart(tmp_path: Path) -> None:
    port = free_port()
    with following(tmp_path, f"http://127.0.0.1:{port}") as program:
        program.says("does not answer")
        with standalone_at(tmp_path, port) as service:
            program.says(announce(service))
        before = program.errors.count("does not answer")
        eventually(lambda: program.errors.count("does not answer") > before, "it asks in vain")
        with standalone_at(tmp_path, port) as service:
            program.says(announce(service))
        check_stops(program)
    assert seqs(program) == [1, 2]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_listener_can_be_stopped(service: Service, tmp_path: Path, number: int) -> None:
    with following(tmp_path, service.url) as program:
        program.says(announce(service))
        check_stops(program, number)


@NIGHTLY
@pytest.mark.parametrize("number", SIGNALS)
def test_a_listener_can_be_stopped_while_the_service_is_down(tmp_path: Path, number: int) -> None:
    with following(tmp_path, f"http://127.0.0.1:{free_port()}") as program:
        program.says("retrying in 2")
        tries = [line for line in program.errors.splitlines() if "retrying in" in line]
        assert all(line.count("Connection refused") == 1 for line in tries)
        assert max(map(len, tries)) < 250  # a short line
        check_stops(program, number)


REJECTED = [
    ("", ["--token", "nobody"], "X-Auth-Token must be"),
    ("", ["--after=-1"], "after: This must be a whole number"),
    ("/nowhere", [], "404"),
]


def test_a_rejected_listener_shows_the_reason_and_ends(service: Service, tmp_path: Path) -> None:
    targets = [(f"{service.url}{path}", given, reason) for path, given, reason in REJECTED]
    targets += [(url, [], url.rstrip("/")) for url in ("nonsense", "ftp://127.0.0.1/", "http://")]
    with ExitStack() as stack:
        programs = [
            stack.enter_context(following(tmp_path, url, *arguments))
            for url, arguments, _ in targets
        ]
        for program, (_, _, reason) in zip(programs, targets, strict=True):
            assert program.wait() == 1
            assert program.last_words.startswith("climate-listen: ")
            assert reason in program.last_words
            assert "Traceback" not in program.errors


@NIGHTLY
def test_a_listener_ends_when_its_output_is_closed(service: Service, tmp_path: Path) -> None:
    announce(service)
    command: list[str | Path] = [BIN / "climate-listen", "--url", service.url]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=environment(tmp_path),
    ) as program:
        assert program.stdout is not None
        assert json.loads(program.stdout.readline())["seq"] == 1
        program.stdout.close()
        announce(service)
        assert program.wait(DEADLINE) == 0
        assert program.stderr is not None
        assert b"Traceback" not in program.stderr.read()


# Over RabbitMQ.


@contextmanager
def subscribed(home: Path, topic: str, *arguments: str, url: str = "") -> Iterator[Program]:
    """Run a listener at the broker, and wait until it follows."""
    given = ("--transport-url", url or servers.RABBITMQ, "--topic", topic, *arguments)
    with running(home, "climate-listen", *given) as program:
        yield program.says(f"reading the topics {topic} ")


def queue_of(program: Program) -> str:
    [line] = [line for line in program.errors.splitlines() if " from the queue " in line]
    return line.rpartition(" ")[2]


def test_every_listener_gets_every_notification(topic: str, tmp_path: Path) -> None:
    with subscribed(tmp_path, topic) as first, subscribed(tmp_path, topic) as second:
        broker.publish(topic, 3)
        for program in (first, second):
            eventually(partial(has_printed, program, 3), "all was heard")
            check_stops(program)
    assert seqs(first) == seqs(second) == [1, 2, 3]
    assert printed_lines(first)[0]["event_type"] == "lease.create"
    assert broker.depth(topic) == 3  # taken from nobody


def test_a_listener_removes_its_queue(topic: str, tmp_path: Path) -> None:
    with subscribed(tmp_path, topic) as program:
        assert broker.has_queue(queue_of(program))
        check_stops(program)
    assert not broker.has_queue(queue_of(program))


@pytest.fixture
def pool(topic: str) -> Iterator[str]:
    yield f"{topic}-pool"
    broker.remove_queue(f"{topic}-pool")


def test_a_pool_keeps_notifications_while_no_listener_runs(
    topic: str, pool: str, tmp_path: Path
) -> None:
    with subscribed(tmp_path, topic, "--pool", pool) as program:
        check_stops(program)
    broker.publish(topic, 300)
    with subscribed(tmp_path, topic, "--pool", pool) as program:
        eventually(lambda: len(printed_lines(program)) == 300, "all was heard")
        check_stops(program)
    assert seqs(program) == list(range(1, 301))


def test_listeners_of_a_pool_share_the_notifications(topic: str, pool: str, tmp_path: Path) -> None:
    arguments = ("--pool", pool)
    with (
        subscribed(tmp_path, topic, *arguments) as first,
        subscribed(tmp_path, topic, *arguments) as second,
    ):

        def total() -> int:
            return len(printed_lines(first)) + len(printed_lines(second))

        def is_heard(number: int) -> bool:
            return total() >= number

        published = 0
        while not (
            printed_lines(first) and printed_lines(second)
        ):  # one may be ready before the other
            broker.publish(topic, 10)
            published += 10
            eventually(partial(is_heard, published), "all was heard")
        check_stops(first)
        check_stops(second)
    assert total() == published


@pytest.mark.parametrize("number", SIGNALS)
def test_a_listener_can_be_stopped_while_it_waits_for_the_broker(
    topic: str, broker_proxy: Proxy, tmp_path: Path, number: int
) -> None:
    broker_proxy.cut()
    arguments = ("--transport-url", broker.through(broker_proxy.port), "--topic", topic)
    with running(tmp_path, "climate-listen", *arguments) as program:
        program.says("Connection refused")
        check_stops(program, number)


def test_a_listener_resumes_when_the_broker_is_back(
    topic: str, broker_proxy: Proxy, tmp_path: Path
) -> None:
    with subscribed(tmp_path, topic, url=broker.through(broker_proxy.port)) as program:
        broker_proxy.cut()
        program.says("is unreachable")
        broker.publish(topic, 2)
        broker_proxy.mend()
        eventually(lambda: seqs(program) == [1, 2], "all was heard")
        check_stops(program)


def test_a_listener_can_be_stopped_after_the_broker_went_away(
    topic: str, broker_proxy: Proxy, tmp_path: Path
) -> None:
    with subscribed(tmp_path, topic, url=broker.through(broker_proxy.port)) as program:
        broker_proxy.cut()
        program.says("is unreachable")
        check_stops(program)
    assert "stays at the broker" in program.errors
    broker.remove_queue(queue_of(program))
