"""A fake enforcement service on the loopback, with the answers that a test sets."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Answer:
    """An answer; the service calls ``wait`` first, if given.

    With ``drip`` the service sends single bytes until the test sets that event.
    """

    status: int = 204
    body: bytes = b""
    wait: Callable[[], Any] | None = None
    drip: threading.Event | None = None


@dataclass(frozen=True)
class Received:
    """A request that the service received."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


def rejection(message: str) -> Answer:
    return Answer(403, json.dumps({"message": message}).encode())


class EnforcementService:
    """Keeps its requests; answers with ``answers`` in turn, and then accepts every lease."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[Received] = []
        self.answers: list[Answer] = []
        self.is_asked = threading.Event()

    def bodies_of(self, path: str) -> list[dict[str, Any]]:
        return [request.body for request in self.asked if request.path == path]

    def handle(self, asked: Received) -> Answer:
        answer = self.answers.pop(0) if self.answers else Answer()
        self.asked.append(asked)
        self.is_asked.set()
        if answer.wait is not None:
            answer.wait()
        return answer


@contextmanager
def serving() -> Iterator[EnforcementService]:
    """Run the service on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            body = json.loads(self.rfile.read(length))
            answer = service.handle(Received(self.path, dict(self.headers), body))
            try:
                self.send_response(answer.status)
                self.end_headers()
                self.wfile.write(answer.body)
                while answer.drip is not None and not answer.drip.wait(0.05):
                    self.wfile.write(b"x")
            except OSError:  # the client has closed the connection
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service = EnforcementService(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
