"""A receiver of webhooks on the loopback: it keeps requests and sends a test's answers."""

import base64
import contextlib
import hashlib
import hmac
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

KEY = bytes(range(32))
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"


@dataclass(frozen=True)
class Answer:
    """An answer; without a status the receiver closes the connection.

    The receiver waits for ``hang`` before it answers, and sends headers until ``drip`` is set.
    """

    status: int | None = 204
    headers: Mapping[str, str] = field(default_factory=dict)
    hang: threading.Event | None = None
    drip: threading.Event | None = None


@dataclass(frozen=True)
class Received:
    """A request that the receiver got."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        return dict(json.loads(self.body))

    @property
    def is_signed(self) -> bool:
        """Whether the signature is valid by Standard Webhooks."""
        signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode()
        digest = hmac.new(KEY, signed + self.body, hashlib.sha256).digest()
        given = self.headers["webhook-signature"]
        return hmac.compare_digest(f"v1,{base64.b64encode(digest).decode()}", given)


@dataclass
class Receiver:
    """Answers with ``answers`` in turn, then with ``then``."""

    url: str
    got: list[Received] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    then: Answer = field(default_factory=Answer)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [request.event for request in self.got]

    @property
    def seqs(self) -> list[int]:
        return [int(event["sequence"]) for event in self.events]

    def handle(self, got: Received) -> Answer:
        self.got.append(got)
        return self.answers.pop(0) if self.answers else self.then


class _Server(ThreadingHTTPServer):
    receiver: Receiver


class _Handler(BaseHTTPRequestHandler):
    """Passes each request to the server's receiver."""

    def do_POST(self) -> None:
        body, size = b"", int(self.headers["Content-Length"])
        with contextlib.suppress(OSError):
            body = self.rfile.read(size)
        if len(body) < size:  # the sender died in the middle of the request
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.receiver.handle(Received(self.path, headers, body))
        self.close_connection = True
        if answer.hang is not None:
            answer.hang.wait(30)
        with contextlib.suppress(OSError):  # the sender has closed the connection
            self._drip(answer.drip) if answer.drip else self._answer(answer)

    def do_GET(self) -> None:
        """Keep the request of a client that follows a redirect."""
        self.receiver.handle(Received(self.path, {}, b"{}"))

    @property
    def receiver(self) -> Receiver:
        assert isinstance(self.server, _Server)
        return self.server.receiver

    def _drip(self, until: threading.Event) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        while not until.wait(0.05):
            self.wfile.write(b"x")

    def _answer(self, answer: Answer) -> None:
        if answer.status is None:
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@contextmanager
def receiving(certificate: Path | None = None, key: Path | None = None) -> Iterator[Receiver]:
    """Run a receiver on a free port, with https if it has a certificate."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    scheme = "http"
    if certificate is not None:
        scheme, context = "https", ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    receiver = Receiver(f"{scheme}://127.0.0.1:{server.server_port}/hook")
    server.receiver = receiver
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
