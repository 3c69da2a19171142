"""Slow and hostile clients of the built-in server keep no connection, and no one else out."""

import json
import os
import resource
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import requests
from flask import Flask

from climate.api.server import connections, http_server
from tests.conftest import MakeStory
from tests.support.loopback import served
from tests.support.process import free_port

_TIMEOUT = 20
HALF = b"GET /v1 HTTP/1.1\r\nHost: localhost\r\n"
LARGEST = 1024 * 1024

Serve = Callable[..., int]


@pytest.fixture
def serve(make_story: MakeStory) -> Iterator[Serve]:
    """Return a function that serves climate, or ``app``, with options; it returns the port."""
    with ExitStack() as servers:

        def start(app: Flask | None = None, **options: object) -> int:
            return servers.enter_context(served(make_story(**options), app))

        yield start


def connect(port: int, data: bytes) -> socket.socket:
    """Connect, send ``data``, and return the socket."""
    client = socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT)
    client.sendall(data)
    return client


def response(client: socket.socket) -> tuple[int, dict[str, str], Any]:
    """Read until the server closes; return status, headers and JSON."""
    with client, client.makefile("rb") as file:
        head, _, body = file.read().partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, json.loads(body)


def test_a_connection_with_half_a_header_is_closed(serve: Serve) -> None:
    port = serve(api__channel_timeout=1)
    with connect(port, HALF) as half:
        assert half.recv(1) == b""


def test_a_request_that_drips_is_closed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_ARRIVAL", 0.5)
    port = serve(api__channel_timeout=1)
    with connect(port, HALF) as drip:
        drip.settimeout(0.1)
        for _ in range(100):
            try:
                drip.sendall(b"X: y\r\n")
                assert drip.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                pass
            return
    raise AssertionError("the connection is still open")


def test_a_client_that_reads_nothing_frees_its_thread(serve: Serve) -> None:
    app = Flask("large")
    ended = threading.Event()

    def large() -> Iterator[bytes]:
        try:
            for _ in range(100):
                yield b"x" * LARGEST
        finally:
            ended.set()

    app.add_url_rule("/", view_func=large)
    port = serve(app, api__channel_timeout=1)
    with connect(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        assert ended.wait(_TIMEOUT)


def test_at_the_limit_the_longest_idle_connection_makes_room(serve: Serve) -> None:
    port = serve(api__connection_limit=16)
    with ExitStack() as stack:
        halves = [stack.enter_context(connect(port, HALF)) for _ in range(40)]
        answer = requests.get(f"http://127.0.0.1:{port}/healthz", timeout=_TIMEOUT)
        assert answer.status_code == 200
        assert halves[0].recv(1) == b""


def test_a_request_that_ends_after_the_server_closed_writes_to_no_other_file(
    make_story: MakeStory,
) -> None:
    story = make_story(DEFAULT__port=free_port())
    with http_server.bound(story.conf, story.http.application) as server:
        listener = server._listeners[0]
    read, write = os.pipe()
    with os.fdopen(read, "rb", 0) as end, os.fdopen(write, "wb", 0):
        listener.trigger.trigger = write  # as if the descriptor were this file's now
        listener.pull_trigger()
        os.set_blocking(read, False)
        assert end.read() is None


def test_a_client_that_sends_no_more_gets_the_response(serve: Serve) -> None:
    app = Flask("slow")
    ended = threading.Event()
    app.add_url_rule("/", view_func=lambda: {"waited": ended.wait(_TIMEOUT)})
    with connect(serve(app), b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") as client:
        client.shutdown(socket.SHUT_WR)
        assert not select.select([client], [], [], 0.5)[0]
        ended.set()
        assert response(client)[2] == {"waited": True}


def test_a_request_that_expects_to_continue_without_a_body_is_answered(serve: Serve) -> None:
    start = b"DELETE /v2/leases HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    client = connect(serve(), start + b"Expect: 100-continue\r\nContent-Length: 0\r\n\r\n")
    assert response(client)[0] == 405


BODIES = {
    "declared": b"Content-Length: 900000000\r\n\r\n",
    "expects to continue": b"Content-Length: 900000000\r\nExpect: 100-continue\r\n\r\n",
    "chunked": b"Transfer-Encoding: chunked\r\n\r\n110000\r\n" + b"x" * 0x110000,
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_that_is_too_large_is_rejected_before_it_arrives(serve: Serve, body: bytes) -> None:
    port = serve()
    for path, expected in (("/v1/leases", "error"), ("/v2/leases", "code")):
        start = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n".encode()
        status, headers, answer = response(connect(port, start + body))
        assert (status, headers["connection"]) == (413, "close")
        assert headers["content-type"].startswith("application/")
        assert expected in answer


def test_a_client_that_still_sends_its_body_gets_the_rejection(serve: Serve) -> None:
    start = b"POST /v2/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000000\r\n\r\n"
    client = connect(serve(), start)
    assert select.select([client], [], [], _TIMEOUT)[0]  # the response is there
    for _ in range(16):
        client.sendall(b" " * 65536)
    status, _, answer = response(client)
    assert (status, answer["code"]) == (413, "content_too_large")


def test_a_malformed_request_is_answered_in_json(serve: Serve) -> None:
    port = serve()
    for request, expected in (
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 300_000 + b"\r\n\r\n", 431),
    ):
        status, _, answer = response(connect(port, request))
        assert (status, answer["error"]) == (expected, expected)


def test_health_is_served_while_all_threads_are_taken(serve: Serve) -> None:
    app = Flask("busy")
    done, begun = threading.Event(), threading.Semaphore(0)

    def wait() -> str:
        begun.release()
        done.wait()
        return ""

    app.add_url_rule("/", view_func=wait)
    app.add_url_rule("/healthz", view_func=lambda: "ok")
    port = serve(app, api__threads=2, notifications__followers=1)
    with ExitStack() as stack:
        stack.callback(done.set)
        for _ in range(6):
            stack.enter_context(connect(port, b"GET / HTTP/1.0\r\n\r\n"))
        for _ in range(3):
            assert begun.acquire(timeout=_TIMEOUT)
        answer = requests.get(f"http://127.0.0.1:{port}/healthz", timeout=_TIMEOUT)
        assert answer.text == "ok"


@contextmanager
def open_files(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> Iterator[list[int]]:
    """Pretend that the process may open ``soft`` files, and ``hard`` if it asks."""
    asked: list[int] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: asked.append(new[0]))
    yield asked


def test_the_limit_of_open_files_is_raised_or_bounds_the_connections(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for soft, hard, raised, possible in (
        (1024, 1_000_000, [2256], 1000),
        (4096, 4096, [], 1000),
        (1024, 2000, [2000], 872),
        (256, 256, [256], 64),
    ):
        with open_files(monkeypatch, soft, hard) as asked:
            assert http_server._possible_connections(1000) == possible
            assert asked == raised
    assert caplog.text.count("ulimit -n") == 2
