"""The program climate-listen."""

import argparse
import json
import os
import signal
import sys
import threading
from typing import Any

from oslo_config.cfg import ConfigOpts

from climate.config.registry import http_url
from climate.notifications import listen as listening
from climate.notifications.emit import open_transport


def run(conf: ConfigOpts, arguments: argparse.Namespace) -> None:
    """Print notifications as JSON, one per line, until the process is interrupted."""
    broker = None if arguments.url else conf.notifications.transport_url
    if broker is not None:
        transport = open_transport(conf, broker)
        with listening.from_broker(transport, conf.notifications.topics, _print, arguments.pool):
            threading.Event().wait()
            return
    url = arguments.url or http_url(conf.host, conf.port)
    for notification in listening.from_http(url, arguments.token, arguments.after):
        ids = {name: notification[name] for name in ("seq", "message_id")}
        _print(notification["event_type"], {**notification["payload"], **ids})


def _print(event_type: str, payload: dict[str, Any]) -> None:
    try:
        sys.stdout.write(json.dumps({"event_type": event_type, **payload}) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe, as in `climate-listen | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        os.kill(os.getpid(), signal.SIGTERM)
