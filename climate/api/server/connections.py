"""Connections of the built-in server: waitress, with limits for slow and hostile clients.

- The server closes a connection whose client neither sends nor reads for too long.
- When the number of connections reaches its limit, the server closes the connection that has been
  idle longest.
- The server rejects a malformed or too large request before the body arrives. The Flask application
  then renders the error response.
- ``/healthz`` has a thread of its own, so it answers even if all other threads are busy.
"""

import socket
import threading
import time
from contextlib import suppress
from typing import Any

from flask import Flask
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import TcpWSGIServer
from waitress.task import ErrorTask, Task, ThreadedTaskDispatcher, WSGITask

MAX_BODY_BYTES = 1024 * 1024
# Key of the WSGI environment: the status and the reason of a rejection.
REJECTION = "climate.rejection"
_HEALTH = "/healthz"
# Seconds for a whole request to arrive, however steadily its bytes drip.
_ARRIVAL = 60.0
# Seconds to discard what the client of a rejected request still sends.
_LINGER = 5.0


class _Request(HTTPRequestParser):  # type: ignore[misc]  # waitress is untyped
    """Parser of a request that is arriving.

    It discards the headers of a malformed or too large request, so that the application does not
    use them when it renders the error response.
    """

    def __init__(self, adj: Adjustments) -> None:
        super().__init__(adj)
        self.began = time.monotonic()

    def received(self, data: bytes) -> int:
        consumed = super().received(data)
        if self.completed:  # rejected, or without a body
            self.expect_continue = False  # else waitress requests the body
        if self.error is not None:
            self.headers.clear()
            if not hasattr(self, "url_scheme"):  # the request line is malformed
                self.parse_header(b"GET / HTTP/1.0\r\n")
        return int(consumed)


class _Connection(HTTPChannel):  # type: ignore[misc]  # waitress is untyped
    parser_class = _Request
    is_rejected = False
    # Whether the client sends no more. It may still read the response (RFC 9112, section 9.6).
    _has_ended = False
    # When a request was last seen in progress. A request that follows it may have had to wait, so
    # its time to arrive starts then.
    _busy_at = 0.0
    _discards_until: float | None = None

    @staticmethod
    def error_task_class(channel: "_Connection", request: HTTPRequestParser) -> Task:
        """Return the task with which waitress answers ``request`` after an error.

        For a rejected request, return a task that lets the Flask application render the error, and
        then closes the connection. If the application itself failed, return the error task of
        waitress.
        """
        if not isinstance(request, _Request) or not hasattr(request, "path"):
            return ErrorTask(channel, request)  # the application failed
        channel.is_rejected = True
        error = request.error
        task = WSGITask(channel, request)
        task.get_environment()[REJECTION] = (error.code, error.body)
        task.set_close_on_finish()
        return task

    def readable(self) -> bool:
        return bool(not (self._has_ended and self.requests) and super().readable())

    def handle_read(self) -> None:
        if self.requests and not self.socket.recv(1, socket.MSG_PEEK):
            self._has_ended = True
        else:
            super().handle_read()

    def received(self, data: bytes) -> bool:
        if self._discards_until is None:
            return bool(super().received(data))
        self.will_close = time.monotonic() > self._discards_until
        return True

    def handle_close(self) -> None:
        """Close the connection; after a rejection, first discard the rest of the request.

        If the server closed the connection while the client still sends, the kernel would reset
        the connection, and the client would not receive the response (RFC 9112, section 9.6).
        """
        if not self.is_rejected or self._discards_until is not None:
            super().handle_close()
            return
        self._discards_until = time.monotonic() + _LINGER
        self.will_close = False
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def is_stuck(self, cutoff: float) -> bool:
        """Return whether the server must close the connection, because its client is too slow.

        A client is too slow if it has sent or read nothing since ``cutoff`` (wall-clock time in
        seconds), or if its request takes too long to arrive.
        """
        with self.outbuf_lock:  # a response that is being written counts as activity
            is_silent = self.last_activity < cutoff
            if self.requests:
                self._busy_at = time.monotonic()
                return bool(is_silent and self.total_outbufs_len)
        if is_silent or self.request is None:
            return bool(is_silent)
        return bool(time.monotonic() - max(self.request.began, self._busy_at) > _ARRIVAL)

    def abort(self) -> None:
        """Shut the socket down, so that waitress's event loop closes the connection.

        Setting the flag ``will_close`` is not enough: waitress would wait until the client has read
        the response. Closing the socket here would be wrong: a new connection could get its file
        descriptor while waitress still polls this connection, and would receive its events.
        """
        self.is_rejected = False
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class _Listener(TcpWSGIServer):  # type: ignore[misc]  # waitress is untyped
    channel_class = _Connection

    def __init__(self, *args: Any, health: ThreadedTaskDispatcher, **kwargs: Any) -> None:
        self._trigger_lock = threading.Lock()
        super().__init__(*args, **kwargs)
        self._health = health

    def add_task(self, channel: _Connection) -> None:
        is_health = channel.requests[0].path == _HEALTH
        (self._health if is_health else self.task_dispatcher).add_task(channel)

    def maintenance(self, now: float) -> None:
        cutoff = now - self.adj.channel_timeout
        for channel in list(self.active_channels.values()):
            if channel.is_stuck(cutoff):
                channel.abort()

    def readable(self) -> bool:
        # One connection too early, because the loop closes the aborted connection only later.
        if self.accepting and len(self._map) >= self.adj.connection_limit - 1:
            self._make_room()
        return bool(super().readable())

    def _make_room(self) -> None:
        idle = [channel for channel in self.active_channels.values() if not channel.requests]
        if idle:
            min(idle, key=lambda channel: channel.last_activity).abort()

    def pull_trigger(self) -> None:
        """Wake waitress's event loop; do nothing if the listener is closed.

        After the listener has closed, its wake-up file descriptor may belong to another file, and
        waking would write a byte to that file.
        """
        with self._trigger_lock:
            if not self.trigger._closed:  # noqa: SLF001 - waitress has no public name for it
                super().pull_trigger()

    def close(self) -> None:
        with self._trigger_lock:
            super().close()


class Server:
    """The built-in HTTP server, which runs the application in worker threads."""

    def __init__(self, app: Flask, adjustments: Adjustments) -> None:
        """Listen on the addresses in ``adjustments``, the settings of waitress.

        Raises OSError if that is not possible. Requests that arrive before ``run`` is called wait
        in a queue.
        """
        self.workers = ThreadedTaskDispatcher()
        self._health = ThreadedTaskDispatcher()
        sockets: dict[int, Any] = {}
        self._listeners = [
            _Listener(
                app,
                sockets,
                dispatcher=self.workers,
                health=self._health,
                adj=adjustments,
                sockinfo=address,
            )
            for address in adjustments.listen
        ]
        self.workers.set_thread_count(adjustments.threads)
        self._health.set_thread_count(1)

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return int(self._listeners[0].effective_port)

    def run(self) -> None:
        """Serve requests until another thread calls ``close``.

        Once ``close`` is called, this function may raise OSError or ValueError. The caller can
        ignore these errors.
        """
        self._listeners[0].run()  # all listeners share one map of sockets

    def close(self) -> None:
        """Accept no more connections, and read no more requests."""
        self._health.set_thread_count(0)
        for listener in self._listeners:
            listener.close()
