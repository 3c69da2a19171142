"""An operator's enforcement service on the loopback, which answers as a test says."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What to answer, after ``wait`` (if given) was called.

    With ``drip`` the body never ends, a byte now and then, before that is set.
    """

    status: int = 204
    body: bytes = b""
    wait: Callable[[], Any] | None = None
    drip: threading.Event | None = None


@dataclass(frozen=True)
class Asked:
    """A request that came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


def no(message: str) -> Answer:
    """Return a refusal."""
    return Answer(403, json.dumps({"message": message}).encode())


class EnforcementService:
    """Keeps what it was asked, and answers with ``answers`` in turn, then with yes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[Asked] = []
        self.answers: list[Answer] = []
        self.is_asked = threading.Event()

    def asked_at(self, path: str) -> list[dict[str, Any]]:
        """Return the bodies that were sent to a path."""
        return [one.body for one in self.asked if one.path == path]

    def handle(self, asked: Asked) -> Answer:
        """Note a request, and return the answer to it."""
        answer = self.answers.pop(0) if self.answers else Answer()
        self.asked.append(asked)
        self.is_asked.set()
        if answer.wait is not None:
            answer.wait()
        return answer


@contextmanager
def serving() -> Iterator[EnforcementService]:
    """Run such a service on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            body = json.loads(self.rfile.read(length))
            answer = service.handle(Asked(self.path, dict(self.headers), body))
            try:
                self.send_response(answer.status)
                self.end_headers()
                self.wfile.write(answer.body)
                while answer.drip is not None and not answer.drip.wait(0.05):
                    self.wfile.write(b"x")
            except OSError:  # whoever asked is gone
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

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
