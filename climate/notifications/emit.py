"""Emitters: they publish notifications to a message broker, or only write them to the log."""

import contextlib
import logging
import warnings
from collections.abc import Mapping
from typing import Any

from oslo_config import cfg
from oslo_config.cfg import ConfigOpts

from climate.core.errors import OperatorError
from climate.core.notifications.message import Notification
from climate.observability import log_context

LOG = logging.getLogger(__name__)
_ENVELOPE = 2.0
# Heartbeat (s) of broker connections. oslo.messaging detects a silent broker within twice this.
_HEARTBEAT = 10


def node_topic(node: str) -> str:
    """Return the name of the broker's topic for notifications about a node (host).

    Every character except ASCII letters, digits and ``-`` is escaped: a dot becomes ``_2e``.
    """
    safe = (
        char if char.isascii() and (char.isalnum() or char == "-") else _escaped(char)
        for char in node
    )
    return f"climate.node.{''.join(safe)}"


def _escaped(char: str) -> str:
    return "".join(f"_{byte:02x}" for byte in char.encode())


class BrokenTransport(OperatorError):
    """Raised if the URL of the broker cannot be used."""


def load_oslo_messaging() -> Any:  # noqa: ANN401 - it is untyped
    """Import oslo.messaging and return it.

    Its import loads eventlet, which climate does not use, and takes 12 MiB. So only processes that
    use a broker import it.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"\s*.*eventlet")
        import oslo_messaging  # noqa: PLC0415 - see the docstring
    return oslo_messaging


def open_transport(
    conf: ConfigOpts, url: str, option: str = "[notifications] transport_url"
) -> Any:  # noqa: ANN401 - oslo.messaging is untyped
    """Return oslo.messaging's transport for the broker at ``url``, without a connection yet.

    Raises BrokenTransport, with ``option`` as the source of the URL.
    """
    oslo_messaging = load_oslo_messaging()
    try:
        transport = oslo_messaging.get_notification_transport(conf, url=url)
    except (oslo_messaging.MessagingException, ValueError) as error:
        raise BrokenTransport(f"{option} cannot be used: {error}") from error
    with contextlib.suppress(cfg.NoSuchGroupError):  # only RabbitMQ's driver has the option
        conf.set_default("heartbeat_timeout_threshold", _HEARTBEAT, "oslo_messaging_rabbit")
    return transport


class LogEmitter:
    """The emitter of an installation without a broker: it writes notifications to the log.

    Without a broker, listeners can read notifications from climate's HTTP API.
    """

    def publish(self, notification: Notification, payload: Mapping[str, Any]) -> None:
        """Write the notification to the log as one line."""
        with log_context.about(notification.lease_id):
            starts_in = payload.get("starts_in")
            LOG.info(
                "notification %s: %s%s",
                notification.seq,
                notification.event_type,
                "" if starts_in is None else f", the lease starts in {starts_in} s",
            )

    def close(self) -> None:
        """Do nothing: there is no connection."""


class MessagingEmitter:
    """The emitter of an installation with a broker: it publishes each notification to topics.

    ``publish`` returns when the broker has confirmed the message.
    """

    def __init__(self, conf: ConfigOpts, transport_url: str) -> None:
        """Prepare the connection to the broker, which the first call of ``publish`` opens.

        ``conf`` contains the names of the topics, and the publisher id in messages.
        """
        self._transport = open_transport(conf, transport_url)
        self._target = load_oslo_messaging().Target
        self._topics: list[str] = conf.notifications.topics
        self._publisher_id: str = conf.notifications.publisher_id
        self._has_node_topics: bool = conf.provisioning.topics

    def publish(self, notification: Notification, payload: Mapping[str, Any]) -> None:
        """Send the notification to each topic (``<topic>.info``), in oslo.messaging's envelope 2.0.

        Raises MessageDeliveryFailure and other errors of oslo.messaging; the caller then tries
        again. oslo.messaging's Notifier is not suitable, because it only logs failures and uses a
        new message id for each attempt. With a constant id, listeners can recognise repetitions.
        """
        message = {
            "message_id": notification.message_id,
            "publisher_id": self._publisher_id,
            "event_type": notification.event_type,
            "priority": "INFO",
            "payload": dict(payload),
            "timestamp": notification.created_at.replace(tzinfo=None).isoformat(sep=" "),
        }
        context = {"project_id": notification.project_id}
        for topic in self._topics_of(notification, payload):
            target = self._target(topic=f"{topic}.info")
            self._transport._send_notification(  # noqa: SLF001 - see the docstring
                target, context, message, version=_ENVELOPE, retry=0
            )

    def _topics_of(self, notification: Notification, payload: Mapping[str, Any]) -> list[str]:
        """Return the topics to which a notification is published.

        If the notification is about a node, it is published only to the topic of that node, or to
        no topic if ``[provisioning] topics`` is off. Otherwise, it is published to the configured
        topics.
        """
        if not notification.event_type.startswith("node."):
            return self._topics
        return [node_topic(payload["node"])] if self._has_node_topics else []

    def close(self) -> None:
        """Close the connection to the broker."""
        self._transport.cleanup()


def for_config(conf: ConfigOpts) -> LogEmitter | MessagingEmitter:
    """Return an emitter for the broker ``[notifications] transport_url``.

    If the option is not set, return a LogEmitter.
    """
    url = conf.notifications.transport_url
    return MessagingEmitter(conf, url) if url else LogEmitter()
