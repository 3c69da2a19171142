"""Serving the API over HTTP: the port, who may reach it, and the end of it."""

import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import waitress
from flask import Flask
from oslo_config.cfg import ConfigOpts

from climate.api.auth import is_loopback
from climate.config import Misconfigured

# Seconds that requests under way have to be answered after SIGTERM.
_DRAIN = 5


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
    try:
        server = waitress.create_server(
            app, host=conf.host, port=conf.port, threads=conf.api.threads, ident="climate"
        )
    except OSError as error:
        where = f"{conf.host}:{conf.port}"
        raise Misconfigured(f"cannot listen on {where}: {error.strerror}") from error
    with closing(server):
        yield server


def serve(conf: ConfigOpts, server: Any, stopping: threading.Event) -> None:  # noqa: ANN401 - waitress is untyped
    """Serve until ``stopping`` is set, then finish the requests under way."""
    thread = threading.Thread(target=server.run, name="http", daemon=True)
    thread.start()
    sys.stdout.write(f"climate is ready at {url(conf.host, server.effective_port)}\n")
    sys.stdout.flush()
    stopping.wait()
    server.close()
    server.task_dispatcher.shutdown(cancel_pending=False, timeout=_DRAIN)
