"""Listening to notifications, also as an example for authors of listeners.

``from_broker`` subscribes with oslo.messaging. ``from_http`` reads ``GET /v2/notifications`` after
a cursor, which needs no broker and also returns the notifications sent while the listener was down.
"""

import logging
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import oslo_messaging
import requests
from oslo_config.cfg import ConfigOpts

from climate.notifications.emit import open_transport

LOG = logging.getLogger(__name__)
Handler = Callable[[str, dict[str, Any]], None]
_TIMEOUT = 60
_WAIT = 20
_LONGEST_PAUSE = 30.0
# Statuses that a retry does not change. 408 and 429 are temporary.
_PERMANENT = frozenset(range(400, 500)) - {408, 429}


class Refused(RuntimeError):
    """The service rejects the request; a retry would not help."""


class _Endpoint:
    """Endpoint for oslo.messaging, which calls ``info`` for each message of that priority."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def info(
        self,
        _context: dict[str, Any],
        _publisher_id: str,
        event_type: str,
        payload: dict[str, Any],
        _metadata: dict[str, Any],
    ) -> None:
        """Handle a message; oslo.messaging acknowledges it after that, so it may come twice."""
        self._handler(event_type, payload)


@contextmanager
def from_broker(
    conf: ConfigOpts,
    transport_url: str,
    topics: list[str],
    handler: Handler,
    pool: str | None = None,
) -> Iterator[None]:
    """Call ``handler`` in a thread for each notification, in order, until the block ends.

    A ``pool`` is a permanent queue: the listeners of a pool share its messages, and it keeps
    messages while no listener is connected. Without a pool the listener has a temporary queue of
    its own. Waits while the broker does not answer.
    """
    transport = open_transport(conf, transport_url)
    queue = pool or f"climate-listen-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    listener = oslo_messaging.get_notification_listener(
        transport,
        [oslo_messaging.Target(topic=topic) for topic in topics],
        [_Endpoint(handler)],
        executor="threading",
        pool=queue,
    )
    listener.start(override_pool_size=1)  # more threads would change the order
    LOG.info("following %s by queue %s", ", ".join(topics), queue)
    try:
        yield
    finally:
        listener.stop()
        listener.wait()
        if pool is None:
            _remove(transport, queue)
        transport.cleanup()


def _remove(transport: Any, queue: str) -> None:  # noqa: ANN401 - oslo.messaging is untyped
    """Remove the queue of a listener that has stopped; without a reader it would only grow."""
    try:
        # oslo.messaging has neither a public function nor an option for it.
        with (
            transport._driver._get_connection(retry=0) as connection,  # noqa: SLF001
            connection._connection_lock,  # noqa: SLF001
        ):
            connection.channel.queue_delete(queue)
    except Exception as error:  # noqa: BLE001 - only the operator can repair it
        LOG.warning("queue %s stays at the broker, remove it there: %s", queue, error)


def from_http(
    url: str, token: str, after: int | None = None, pause: float = 1.0
) -> Iterator[dict[str, Any]]:
    """Yield notifications later than ``after`` (None: from the oldest stored one), forever.

    ``url`` is the service's root. Each request waits at the service for the next notification
    (long polling). If the service does not answer or has too many followers, the function retries
    with growing pauses. Raises Refused if the service rejects the request, for example because it
    has removed the next notifications already.
    """
    session = requests.Session()
    session.headers["X-Auth-Token"] = token
    delay = pause
    while True:
        page = _read(session, f"{url.rstrip('/')}/v2/notifications", after)
        if page is None:
            LOG.warning("retrying in %s s", delay)
            time.sleep(delay)
            delay = min(delay * 2, _LONGEST_PAUSE)
            continue
        delay = pause
        yield from page["notifications"]
        after = page["after"]


def _read(session: requests.Session, url: str, after: int | None) -> dict[str, Any] | None:
    """Return the next page of notifications; None if the service does not answer."""
    params = {"wait": _WAIT} | ({} if after is None else {"after": after})
    try:
        response = session.get(url, params=params, timeout=_TIMEOUT)
        if response.status_code in _PERMANENT:
            raise Refused(f"{url} answers {response.status_code}: {response.text}")
        response.raise_for_status()
        page = response.json()
        return {"notifications": list(page["notifications"]), "after": int(page["after"])}
    except (ValueError, LookupError, TypeError) as error:  # an invalid URL, or unexpected JSON
        raise Refused(f"{url} is no log of notifications: {error}") from error
    except requests.RequestException as error:
        LOG.warning("%s does not answer: %s", url, error)
        return None
