"""The built-in HTTP server: listens on the port, and finishes running requests at shutdown."""

import logging
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from flask import Flask
from oslo_config.cfg import ConfigOpts
from waitress.adjustments import Adjustments
from waitress.task import ThreadedTaskDispatcher

from climate.api.auth import is_loopback
from climate.api.server.connections import MAX_BODY_BYTES, Server
from climate.config.registry import Misconfigured, http_url

LOG = logging.getLogger(__name__)

# Seconds after SIGTERM to finish the requests in progress.
_DRAIN = 5
# Seconds until the socket closes. In this time, requests that wait for notifications can end.
_CLOSE_DELAY = 1.0
# Seconds between searches for connections without progress.
_CLEANUP_INTERVAL = 5
# Open files besides connections: database, log, broker, libraries.
_OTHER_FILES = 256
# A connection has its socket, and a temporary file for a large request or response.
_FILES_PER_CONNECTION = 2


def check_address(conf: ConfigOpts) -> None:
    """Raise Misconfigured if the API would serve other machines without authentication.

    Without authentication, ``conf.host`` must be a loopback address. The option ``[api]
    serve_unauthenticated_to_the_network`` lifts this restriction.
    """
    open_to_all = conf.api.serve_unauthenticated_to_the_network
    if conf.api.auth_strategy == "noauth" and not open_to_all and not is_loopback(conf.host):
        raise Misconfigured(
            f"not listening on {conf.host}: there is no authentication, so anyone who reaches"
            " that address could do anything; if that is what you want, set"
            " [api] serve_unauthenticated_to_the_network = true"
        )


@contextmanager
def bound(conf: ConfigOpts, app: Flask) -> Iterator[Server]:
    """Listen on the configured port, and yield the server. Close the server after the block.

    Requests that arrive before ``serve`` is called wait in a queue. Raises Misconfigured if the
    process cannot listen on the port.
    """
    try:
        server = Server(app, _adjustments(conf))
    except OSError as error:
        where = f"{conf.host}:{conf.port}"
        raise Misconfigured(f"cannot listen on {where}: {error.strerror}") from error
    with closing(server):
        yield server


def deletion_waits(conf: ConfigOpts) -> int:
    """Return how many requests to this process may wait for deletions of leases at the same time.

    The number is a quarter of ``[api] threads``. The server starts the same number of threads in
    addition to ``[api] threads``, so waiting requests never block others.
    """
    threads: int = conf.api.threads
    return max(1, threads // 4)


def _adjustments(conf: ConfigOpts) -> Adjustments:
    return Adjustments(
        host=conf.host,
        port=conf.port,
        # Waiting requests have their own threads and never block others.
        threads=conf.api.threads + conf.notifications.followers + deletion_waits(conf),
        ident="climate",
        connection_limit=_possible_connections(conf.api.connection_limit),
        channel_timeout=conf.api.channel_timeout,
        cleanup_interval=min(_CLEANUP_INTERVAL, conf.api.channel_timeout),
        max_request_body_size=MAX_BODY_BYTES + 1,  # waitress rejects this size, too
        # So that waitress polls a connection while it sends a stream, and sees that it was reset.
        channel_request_lookahead=1,
        asyncore_use_poll=True,  # select() fails for file descriptors from 1024 on
    )


def _possible_connections(limit: int) -> int:
    """Return how many connections the process can have open, at most ``limit``.

    Each connection needs open files. If the process may not open enough files for ``limit``
    connections, first raise its limit of open files as far as the system allows.
    """
    # A server without a free file descriptor accepts no connection, and uses a whole processor.
    needed = limit * _FILES_PER_CONNECTION + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return limit
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    possible = min(limit, max(raised // 2, raised - _OTHER_FILES) // _FILES_PER_CONNECTION)
    if possible < limit:
        LOG.warning(
            "[api] connection_limit is %s, but the limit of %s open files allows only %s"
            " connections: raise it (ulimit -n), or lower [api] connection_limit",
            *(limit, raised, possible),
        )
    return possible


def serve(
    conf: ConfigOpts,
    server: Server,
    stopping: threading.Event,
    stop_waiting: Callable[[], None],
) -> None:
    """Serve requests until ``stopping`` is set, then finish the requests in progress.

    When ``stopping`` is set, this function calls ``stop_waiting``, which must make all requests
    that wait for notifications return.
    """
    threading.Thread(target=_run, args=(server, stopping), name="http", daemon=True).start()
    sys.stdout.write(f"climate is ready at {http_url(conf.host, server.port)}\n")
    sys.stdout.flush()
    stopping.wait()
    stop_waiting()
    _until_idle(server.workers)
    server.close()
    server.workers.shutdown(cancel_pending=False, timeout=_DRAIN)


def _run(server: Server, stopping: threading.Event) -> None:
    """Run the server until its sockets are closed.

    When the process stops, waitress may use a closed socket; the resulting errors are ignored.
    """
    try:
        server.run()
    except (OSError, ValueError):  # bad file descriptor, negative file descriptor
        if not stopping.is_set():
            raise


def _until_idle(dispatcher: ThreadedTaskDispatcher) -> None:
    """Wait until ``dispatcher`` runs no request, but at most ``_CLOSE_DELAY`` seconds."""
    deadline = time.monotonic() + _CLOSE_DELAY
    while dispatcher.active_count and time.monotonic() < deadline:
        time.sleep(0.02)
