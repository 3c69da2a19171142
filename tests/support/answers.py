"""A service on the loopback that gives the answers of a test, one per request."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass(frozen=True)
class Answering:
    """The service: its URL, and the paths (with queries) that were requested."""

    url: str
    asked: list[str] = field(default_factory=list)


@contextmanager
def answering(*answers: tuple[int, Any]) -> Iterator[Answering]:
    """Run a service that gives these answers (status and JSON) to GET requests."""
    remaining = iter(answers)

    class Conversation(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            service.asked.append(self.path)
            status, body = next(remaining)
            data = json.dumps(body).encode()
            self.send_response(status, "as the test says")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_arguments: object) -> None:
            """Write nothing to standard error."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Conversation) as server:
        service = Answering(f"http://127.0.0.1:{server.server_port}")
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()
