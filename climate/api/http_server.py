"""The built-in HTTP server: listens on the port, and drains requests at shutdown."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import waitress
from flask import Flask
from oslo_config.cfg import ConfigOpts

from climate.api.auth import is_loopback
from climate.config.registry import Misconfigured

# Seconds after SIGTERM to finish the requests in progress.
_DRAIN = 5
# Seconds before the socket closes: enough for requests that wait for notifications to end.
_CLOSE_DELAY = 1.0


def url(host: str, port: int) -> str:
    """Return the http URL of a host and port; an IPv6 address gets brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def check_address(conf: ConfigOpts) -> None:
    """Raise Misconfigured if the API would listen beyond loopback without authentication.

    ``[api] serve_unauthenticated_to_the_network`` permits it.
    """
    open_to_all = conf.api.serve_unauthenticated_to_the_network
    if conf.api.auth_strategy == "noauth" and not open_to_all and not is_loopback(conf.host):
        raise Misconfigured(
            f"not listening on {conf.host}: there is no authentication, so anyone who reaches"
            " that address could do anything; if that is what you want, set"
            " [api] serve_unauthenticated_to_the_network = true"
        )


@contextmanager
def bound(conf: ConfigOpts, app: Flask) -> Iterator[Any]:
    """Listen on the port, and yield the server; close it after the block.

    Requests queue until ``serve`` runs. Raises Misconfigured.
    """
    # Waiting requests (streams, long polls) have their own threads and never block others.
    threads = conf.api.threads + conf.notifications.followers
    try:
        server = waitress.create_server(
            app,
            host=conf.host,
            port=conf.port,
            threads=threads,
            ident="climate",
            # So that waitress reads while it sends a stream, and sees that the client disconnected.
            channel_request_lookahead=1,
        )
    except OSError as error:
        where = f"{conf.host}:{conf.port}"
        raise Misconfigured(f"cannot listen on {where}: {error.strerror}") from error
    with closing(server):
        yield server


def serve(
    conf: ConfigOpts,
    server: Any,  # noqa: ANN401 - waitress is untyped
    stopping: threading.Event,
    stop_waiting: Callable[[], None],
) -> None:
    """Serve requests until ``stopping`` is set, then finish the requests in progress.

    ``stop_waiting`` is called to end the requests that wait for notifications.
    """
    threading.Thread(target=_run, args=(server, stopping), name="http", daemon=True).start()
    sys.stdout.write(f"climate is ready at {url(conf.host, server.effective_port)}\n")
    sys.stdout.flush()
    stopping.wait()
    stop_waiting()
    _until_idle(server.task_dispatcher)
    server.close()
    server.task_dispatcher.shutdown(cancel_pending=False, timeout=_DRAIN)


def _run(server: Any, stopping: threading.Event) -> None:  # noqa: ANN401 - waitress is untyped
    """Serve until the sockets are closed; ``select`` may raise when that happens."""
    try:
        server.run()
    except (OSError, ValueError):  # bad file descriptor, negative file descriptor
        if not stopping.is_set():
            raise


def _until_idle(dispatcher: Any) -> None:  # noqa: ANN401 - waitress is untyped
    """Wait until no request is in progress, for ``_CLOSE_DELAY`` seconds at most."""
    deadline = time.monotonic() + _CLOSE_DELAY
    while dispatcher.active_count and time.monotonic() < deadline:
        time.sleep(0.02)
