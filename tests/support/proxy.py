"""A TCP proxy that can drop its connections, like a restart of the server behind it."""

import contextlib
import socket
import threading
from typing import Self

_CHUNK = 65536
_ALWAYS = threading.Event()
_ALWAYS.set()


class Proxy:
    """Forwards connections from a port of the loopback to a server."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._answering = threading.Event()
        self._answering.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._accept()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def cut(self) -> None:
        """Drop all connections, and refuse new connections."""
        _close(self._listener)
        with self._lock:
            dropped, self._sockets = self._sockets, set()
        for item in dropped:
            _close(item)
        self._answering.set()

    def hush(self) -> None:
        """Withhold the server's answers: the server accepts requests and remains silent."""
        self._answering.clear()

    def mend(self) -> None:
        """Accept connections again, and forward the server's answers again."""
        self._answering.set()
        if self._listener.fileno() < 0:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._accept()

    def _accept(self) -> None:
        threading.Thread(target=self._serve, args=(self._listener,), daemon=True).start()

    def _serve(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                client, _ = listener.accept()
                try:
                    server = socket.create_connection(self._target)
                except OSError:  # the server does not listen: the client sees a closed connection
                    _close(client)
                    continue
                with self._lock:
                    self._sockets |= {client, server}
                for pair in ((client, server, _ALWAYS), (server, client, self._answering)):
                    threading.Thread(target=_pump, args=pair, daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket, may: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            may.wait()
            sink.sendall(data)
    _close(source)
    _close(sink)


def _close(one: socket.socket) -> None:
    """Close a socket, even while another thread reads from it."""
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
