"""Delivery of a notification to a webhook: a signed CloudEvent, sent to a checked address.

``WebhookPoster`` resolves the receiver's name, checks each address and connects to a checked
address, so a later change of the name has no effect (DNS rebinding). It follows no redirects, uses
no proxies, and reads only the status and Retry-After of an answer.
"""

import base64
import hashlib
import hmac
import http.client
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from oslo_config.cfg import ConfigOpts

from climate.config.registry import Misconfigured
from climate.core.errors import InvalidInput
from climate.core.notifications.message import Notification
from climate.core.notifications.subscription import (
    Delivery,
    Outcome,
    WebhookRules,
    check_address,
    check_url,
    key_of,
    where,
)

# Seconds; a delivery that takes longer counts as slow.
_SLOW = 1.0
# Keys of the payload that a shortened notification has.
_ESSENTIAL = ("seq", "message_id", "lease_id", "project_id", "name", "status", "starts_in")


class WebhookPoster:
    """Posts deliveries. Thread-safe."""

    def __init__(self, rules: WebhookRules, source: str, cafile: str | None = None) -> None:
        """Set the CloudEvents ``source``, and the CA file for TLS (None: the system's)."""
        self._rules = rules
        self._source = source
        self._tls = ssl.create_default_context(cafile=cafile)

    def post(self, delivery: Delivery, payload: Mapping[str, Any]) -> Outcome:
        """Send a delivery and return its outcome; failures are outcomes, not exceptions."""
        body = event_body(delivery.notification, payload, self._source, self._rules.largest)
        headers = {
            "Content-Type": "application/cloudevents+json; charset=UTF-8",
            "User-Agent": "climate",
            **signature(delivery, body),
        }
        began = time.monotonic()
        try:
            status, wish = self._send(delivery.subscription.url, body, headers)
        except (OSError, ValueError, http.client.HTTPException, InvalidInput) as error:
            return Outcome(reason=self._reason(error), slow=True)
        if status in range(200, 300):
            return Outcome(slow=time.monotonic() - began > _SLOW)
        text = f"HTTP {status}"
        if status in range(300, 400):
            text += ": redirects are not followed"
        return Outcome(
            reason=text,
            gone=status == http.client.GONE,
            retry_after=float(wish) if re.fullmatch(r"\d{1,9}", wish, re.ASCII) else 0.0,
            slow=True,
        )

    def _send(self, url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        """Return the status and Retry-After; raises OSError, ValueError, HTTPException."""
        check_url(url, self._rules)  # the rules may have changed since the creation
        host, port = where(url)
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        with self._connected(host, port, secure=parts.scheme == "https") as connected:
            connection = http.client.HTTPConnection(host, port)
            connection.sock = connected
            all_headers = {"Host": parts.netloc, "Connection": "close", **headers}
            connection.request("POST", path, body, all_headers)
            answer = connection.getresponse()
            return answer.status, answer.headers.get("Retry-After", "")

    @contextmanager
    def _connected(self, host: str, port: int, *, secure: bool) -> Iterator[socket.socket]:
        """Connect to a checked address; the connection breaks at the time-out."""
        deadline = time.monotonic() + self._rules.timeout
        with closing(self._connect(host, port, deadline)) as plain:
            connected = plain
            if secure:
                connected = self._tls.wrap_socket(plain, server_hostname=host)
            # Each received byte restarts a socket's time-out, so a timer bounds the delivery.
            watch = threading.Timer(max(0.0, deadline - time.monotonic()), _cut, [connected])
            watch.daemon = True
            watch.start()
            try:
                yield connected
            finally:
                watch.cancel()
                connected.close()
                # A broken connection may look like the end of an answer.
                if time.monotonic() >= deadline:
                    raise TimeoutError

    def _connect(self, host: str, port: int, deadline: float) -> socket.socket:
        """Return a connection to the first address that is allowed and answers."""
        failure: OSError | InvalidInput = OSError("the name has no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        ):
            try:
                check_address(str(address[0]), self._rules)
                connection = socket.socket(family, kind, protocol)
                try:
                    connection.settimeout(max(0.01, deadline - time.monotonic()))
                    connection.connect(address)
                except OSError:
                    connection.close()
                    raise
            except (OSError, InvalidInput) as error:
                failure = error
            else:
                return connection
        raise failure

    def _reason(self, error: Exception) -> str:
        """Return the reason of a failure, for the owner of the subscription."""
        if isinstance(error, InvalidInput):
            return error.message
        if isinstance(error, TimeoutError):
            return f"no answer within {self._rules.timeout:g} s"
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not to be trusted: {error.verify_message}"
        if isinstance(error, socket.gaierror):
            return "its name cannot be resolved"
        if isinstance(error, ConnectionRefusedError):
            return "it refuses connections"
        return "the connection broke, or what came back is no HTTP"


def event_body(
    notification: Notification, payload: Mapping[str, Any], source: str, largest: int
) -> bytes:
    """Return a CloudEvent 1.0 in structured mode, so that the signature covers all of it.

    ``sequence`` is the CloudEvents extension of that name. It is padded, because receivers compare
    it as text. A body larger than ``largest`` bytes is ``shortened`` to the essential keys.
    """
    event = {
        "specversion": "1.0",
        "id": notification.message_id,
        "source": source,
        "type": notification.event_type,
        "time": notification.created_at.isoformat(timespec="microseconds"),
        "sequence": f"{notification.seq:020}",
        "datacontenttype": "application/json",
        **({"subject": notification.lease_id} if notification.lease_id else {}),
    }
    body = _encoded({**event, "data": dict(payload)})
    if len(body) <= largest:
        return body
    essential = {name: payload[name] for name in _ESSENTIAL if name in payload}
    return _encoded({**event, "data": {**essential, "shortened": True}})


def signature(delivery: Delivery, body: bytes) -> dict[str, str]:
    """Return the headers of Standard Webhooks, with which the receiver verifies the sender.

    https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
    """
    id_, stamp = delivery.notification.message_id, str(int(delivery.at.timestamp()))
    signed = f"{id_}.{stamp}.".encode() + body
    digest = hmac.new(key_of(delivery.secret), signed, hashlib.sha256).digest()
    return {
        "webhook-id": id_,
        "webhook-timestamp": stamp,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def for_config(conf: ConfigOpts, rules: WebhookRules) -> WebhookPoster:
    """Return a poster with the operator's options; raises Misconfigured."""
    options = conf.notifications
    try:
        return WebhookPoster(rules, options.publisher_id, options.webhook_cafile)
    except (OSError, ssl.SSLError) as error:
        raise Misconfigured(f"[notifications] webhook_cafile: {error}") from error


def _encoded(event: Mapping[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()


def _cut(connected: socket.socket) -> None:
    """Break a connection, even while another thread reads from it."""
    with suppress(OSError):
        socket.socket.shutdown(connected, socket.SHUT_RDWR)
