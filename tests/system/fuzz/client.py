"""A client that sends requests as they are: others correct or reject them."""

import http.client
import socket
from contextlib import suppress

from werkzeug.datastructures import Headers

from tests.api.random_requests import Answer, Request

# Seconds without a byte after which the service counts as hung.
_TIMEOUT = 100.0


class Client:
    """Sends requests one after the other, on one connection as long as the service keeps it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def send(self, request: Request) -> Answer:
        """Send a request; send it again if the service had closed the idle connection."""
        if self._socket is not None:
            with suppress(ConnectionError, http.client.BadStatusLine):
                return self._exchange(self._socket, request)
        self._socket = socket.create_connection(("127.0.0.1", self._port), _TIMEOUT)
        return self._exchange(self._socket, request)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _exchange(self, connection: socket.socket, request: Request) -> Answer:
        connection.sendall(_encoded(request, self._port))
        response = http.client.HTTPResponse(connection, method=request.method)
        response.begin()
        headers = Headers(response.getheaders())
        # A stream has no end.
        streams = (headers.get("Content-Type") or "").startswith("text/event-stream")
        body = b"" if streams else response.read()
        if streams or response.will_close:
            self.close()
        return Answer(response.status, headers, body)


def _encoded(request: Request, port: int) -> bytes:
    target = f"{request.path}?{request.query}" if request.query else request.path
    headers = {"Host": f"127.0.0.1:{port}", **request.headers}
    if request.body or request.method in {"POST", "PUT", "PATCH"}:
        headers = {"Content-Type": "application/json", **headers}
        headers["Content-Length"] = str(len(request.body))
    lines = [f"{request.method} {target} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + request.body
