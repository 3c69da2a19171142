"""Serving the API over HTTP: the port, who may reach it, and the end of it."""

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

# Seconds that requests under way have to be answered after SIGTERM.
_DRAIN = 5
# Of these, before nobody new is let in: who merely follows is done then.
_GOODBYE = 1.0


def url(host: str, port: int) -> str:
    """Return the address as one can open it; an IPv6 address needs brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def check_address(conf: ConfigOpts) -> None:
    """Without authentication, listen to this machine alone unless told otherwise."""
    open_to_all = conf.api.serve_unauthenticated_to_the_network
    if conf.api.auth_strategy == "noauth" and not open_to_all and not is_loopback(conf.host):
        raise Misconfigured(
            f"not listening on {conf.host}: there is no authentication, so anyone who reaches"
            " that address could do anything; if that is what you want, set"
            " [api] serve_unauthenticated_to_the_network = true"
        )


@contextmanager
def bound(conf: ConfigOpts, app: Flask) -> Iterator[Any]:
    """Hold the port; requests wait there until they are served."""
    # Those who follow notifications have threads of their own: others never wait for them.
    threads = conf.api.threads + conf.notifications.followers
    try:
        server = waitress.create_server(
            app, host=conf.host, port=conf.port, threads=threads, ident="climate"
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
    dismiss: Callable[[], None],
) -> None:
    """Serve until ``stopping`` is set, ``dismiss`` who only waits, and finish the requests."""
    threading.Thread(target=_run, args=(server, stopping), name="http", daemon=True).start()
    sys.stdout.write(f"climate is ready at {url(conf.host, server.effective_port)}\n")
    sys.stdout.flush()
    stopping.wait()
    dismiss()
    _until_idle(server.task_dispatcher)
    server.close()
    server.task_dispatcher.shutdown(cancel_pending=False, timeout=_DRAIN)


def _run(server: Any, stopping: threading.Event) -> None:  # noqa: ANN401 - waitress is untyped
    """Answer requests until the sockets are closed, which it may be about to wait for."""
    try:
        server.run()
    except (OSError, ValueError):  # bad file descriptor, negative file descriptor
        if not stopping.is_set():
            raise


def _until_idle(dispatcher: Any) -> None:  # noqa: ANN401 - waitress is untyped
    """Wait, not for long, until no request is being answered."""
    ends = time.monotonic() + _GOODBYE
    while dispatcher.active_count and time.monotonic() < ends:
        time.sleep(0.02)
