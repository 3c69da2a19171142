"""A WSGI application that answers requests on a port of the loopback."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from werkzeug.serving import make_server

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


@contextmanager
def listening(application: "WSGIApplication", port: int) -> Iterator[None]:
    """Answer requests in threads until the end of the block. The port must be free."""
    server = make_server("127.0.0.1", port, application, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
