"""A proxy to a cloud's service: a test decides the fault of each request that changes something."""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

import requests

_TIMEOUT = 60.0
# What belongs to one connection and not to the message.
_HOP = {"connection", "content-encoding", "content-length", "host", "keep-alive"} | {
    "transfer-encoding",
}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Change:
    """A request that changes something; ``number`` counts them from 1."""

    number: int
    method: str
    path: str
    body: bytes

    @property
    def kind(self) -> str:
        """The request without ids: ``POST os-aggregates action add_host``."""
        words = [word for word in self.path.split("/") if word and not _is_id(word)]
        verb = self.body.split(b'"')[1].decode() if b'"' in self.body else ""
        return " ".join([self.method, *words[1:], verb]).strip()


# Given a change and a function that forwards it, returns the answer; None closes the connection.
Fault = Callable[[Change, Callable[[], Answer]], Answer | None]


def no_fault(_: Change, forward: Callable[[], Answer]) -> Answer | None:
    return forward()


def error_answer(status: int) -> Answer:
    """Return an answer with an error as Nova sends it."""
    text = b'{"computeFault": {"code": %d, "message": "a fault of the test"}}' % status
    return Answer(status, {"Content-Type": "application/json"}, text)


class FaultyProxy:
    """Forwards requests to a service; ``fault`` decides on those that change something.

    While it is ``away``, it answers all with 503.
    """

    def __init__(self, target: str) -> None:
        self._target = f"{urlsplit(target).scheme}://{urlsplit(target).netloc}"
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self._server.server_port}{urlsplit(target).path}"
        self.changes: list[Change] = []
        self.fault: Fault = no_fault
        self.away = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def begin(self, fault: Fault = no_fault) -> None:
        """Set the fault, and count changes from 1 again."""
        with self._lock:
            self.changes, self.fault = [], fault

    @property
    def kinds(self) -> list[str]:
        """The changes since ``begin``, in order."""
        return [change.kind for change in self.changes]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                with contextlib.suppress(OSError):  # the client is gone, or was killed
                    super().handle_one_request()

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answer = proxy._answer(self.command, self.path, dict(self.headers), body)
                if answer is None:
                    self.close_connection = True
                else:
                    _send(self, answer)

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = answer  # noqa: N815

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        return Handler

    def _answer(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> Answer | None:
        if self.away:
            return error_answer(503)

        def forward() -> Answer:
            return self._forward(method, path, headers, body)

        if method == "GET":
            return forward()
        with self._lock:
            change = Change(len(self.changes) + 1, method, path, body)
            self.changes.append(change)
            fault = self.fault
        return fault(change, forward)

    def _forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        given = {name: value for name, value in headers.items() if name.lower() not in _HOP}
        url = f"{self._target}{path}"
        response = requests.request(method, url, headers=given, data=body, timeout=_TIMEOUT)
        kept = {name: text for name, text in response.headers.items() if name.lower() not in _HOP}
        return Answer(response.status_code, kept, response.content)


def _send(handler: BaseHTTPRequestHandler, answer: Answer) -> None:
    handler.send_response(answer.status)
    for name, value in answer.headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(answer.body)))
    handler.end_headers()
    handler.wfile.write(answer.body)


def _is_id(word: str) -> bool:
    return word.isdigit() or len(word) > 30
