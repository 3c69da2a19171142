"""Following what climate publishes: the example a listener's author starts from.

``from_broker`` subscribes with oslo.messaging; ``from_http`` reads ``GET /v2/notifications``
from a cursor on, which needs no broker and misses nothing while it was away.
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
# Asking again will not help, unlike with the statuses of a service that is (re)starting.
_HOPELESS = frozenset(range(400, 500)) - {408, 429}


class Refused(RuntimeError):
    """The service will not tell us, however often we ask."""


class _Endpoint:
    """What oslo.messaging calls for each message of priority INFO."""

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
        """Handle a message; it is acknowledged after that, and comes again if we die before."""
        self._handler(event_type, payload)


@contextmanager
def from_broker(
    conf: ConfigOpts,
    transport_url: str,
    topics: list[str],
    handler: Handler,
    pool: str | None = None,
) -> Iterator[None]:
    """Call ``handler`` in a thread for each notification, in order, until the block is left.

    A ``pool`` is a queue that stays: listeners of one pool share its messages, and it keeps those
    that come while none listens. Without one the listener has a queue to itself, which is
    removed at the end. Waits for a broker that is away.
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
    listener.start(override_pool_size=1)  # more threads would mix up the order
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
    """Remove a queue that nobody will listen to again: it would grow for ever."""
    try:
        # oslo.messaging has no word for it, and no option to have it done by the broker.
        with (
            transport._driver._get_connection(retry=0) as connection,  # noqa: SLF001
            connection._connection_lock,  # noqa: SLF001
        ):
            connection.channel.queue_delete(queue)
    except Exception as error:  # noqa: BLE001 - whatever it is, there is nothing we can do
        LOG.warning("queue %s stays at the broker, remove it there: %s", queue, error)


def from_http(
    url: str, token: str, after: int | None = None, pause: float = 1.0
) -> Iterator[dict[str, Any]]:
    """Yield notifications later than ``after`` (None: all that is kept), for ever.

    ``url`` is the service's root. It is asked to wait until there is something to say, and asked
    again, after longer and longer pauses, if it does not answer or has no room for us. Raises
    Refused if it answers that it will not tell us, as when what comes next is not kept any more.
    """
    session = requests.Session()
    session.headers["X-Auth-Token"] = token
    away = pause
    while True:
        found = _read(session, f"{url.rstrip('/')}/v2/notifications", after)
        if found is None:
            LOG.warning("asking again in %s s", away)
            time.sleep(away)
            away = min(away * 2, _LONGEST_PAUSE)
            continue
        away = pause
        yield from found["notifications"]
        after = found["after"]


def _read(session: requests.Session, url: str, after: int | None) -> dict[str, Any] | None:
    """Return the next page of notifications; None if the service does not answer."""
    params = {"wait": _WAIT} | ({} if after is None else {"after": after})
    try:
        response = session.get(url, params=params, timeout=_TIMEOUT)
        if response.status_code in _HOPELESS:
            raise Refused(f"{url} answers {response.status_code}: {response.text}")
        response.raise_for_status()
        page = response.json()
        return {"notifications": list(page["notifications"]), "after": int(page["after"])}
    except (ValueError, LookupError, TypeError) as error:  # no URL, or not our JSON
        raise Refused(f"{url} is no log of notifications: {error}") from error
    except requests.RequestException as error:
        LOG.warning("%s does not answer: %s", url, error)
        return None
