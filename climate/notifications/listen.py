"""Following what climate publishes: the example a listener's author starts from.

``from_broker`` subscribes with oslo.messaging; ``from_http`` reads ``GET /v2/notifications``
from a cursor on, which needs no broker and misses nothing while it was away.
"""

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import oslo_messaging
import requests
from oslo_config.cfg import ConfigOpts

from climate.notifications.emit import open_transport

LOG = logging.getLogger(__name__)
Handler = Callable[[str, dict[str, Any]], None]
_TIMEOUT = 30
_REFUSED = range(400, 500)


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
    ) -> str:
        """Handle a message; it is acknowledged after that, and comes again if we die before."""
        self._handler(event_type, payload)
        return str(oslo_messaging.NotificationResult.HANDLED)


def from_broker(
    conf: ConfigOpts, transport_url: str, topics: list[str], handler: Handler, pool: str | None
) -> Any:  # noqa: ANN401 - oslo.messaging is untyped
    """Return a listener (start, stop, wait) that calls ``handler`` for each notification.

    Listeners of one ``pool`` share the messages; without a pool all listeners share one queue.
    """
    return oslo_messaging.get_notification_listener(
        open_transport(conf, transport_url),
        [oslo_messaging.Target(topic=topic) for topic in topics],
        [_Endpoint(handler)],
        executor="threading",
        pool=pool,
    )


def from_http(url: str, token: str, after: int, pause: float = 1.0) -> Iterator[dict[str, Any]]:
    """Yield notifications later than ``after``, for ever; ``url`` is the service's root.

    A service that does not answer is asked again; raises requests.HTTPError if it refuses us.
    """
    session = requests.Session()
    session.headers["X-Auth-Token"] = token
    while True:
        found = _read(session, url, after)
        for notification in found:
            after = notification["seq"]
            yield notification
        if not found:
            time.sleep(pause)


def _read(session: requests.Session, url: str, after: int) -> list[dict[str, Any]]:
    """Return the next notifications; none if the service is away."""
    try:
        response = session.get(
            f"{url.rstrip('/')}/v2/notifications", params={"after": after}, timeout=_TIMEOUT
        )
        response.raise_for_status()
    except requests.RequestException as error:
        if error.response is not None and error.response.status_code in _REFUSED:
            raise
        LOG.warning("%s does not answer, asking again: %s", url, error)
        return []
    return list(response.json()["notifications"])
