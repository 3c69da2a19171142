"""Serves a whole service of this process on the loopback, with the built-in HTTP server."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from flask import Flask
from waitress import wasyncore

from climate.api.server import http_server
from tests.support.process import free_port
from tests.support.service import Story

_TIMEOUT = 20
_LOOP = 0.02


@contextmanager
def served(story: Story, app: Flask | None = None) -> Iterator[int]:
    """Serve ``story``, or ``app`` with its options, during the block; yield the port."""
    port = free_port()
    story.conf.set_override("port", port)
    with http_server.bound(story.conf, app or story.http.application) as server:
        listener = server._listeners[0]
        listener.adj.asyncore_loop_timeout = _LOOP  # it sees only then that it is closed
        stopping = threading.Event()
        thread = threading.Thread(target=http_server._run, args=(server, stopping), daemon=True)
        thread.start()
        try:
            yield port
        finally:
            stopping.set()
            story.runtime.latest.close()
            server.close()
            # Clients keep their connections open, and the server would serve them to their end.
            wasyncore.close_all(listener._map, ignore_all=True)
            thread.join(_TIMEOUT)
