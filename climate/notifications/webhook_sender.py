"""Webhook sender: posts a notification, as a signed CloudEvent or chat message, by HTTP.

The sender resolves the receiver's host name, checks each address, and connects to an address that
has passed the check. So a later change of the name in DNS (DNS rebinding) has no effect. The sender
follows no redirects and uses no proxies. Of the response, it reads only the status and
``Retry-After``.
"""

import base64
import hashlib
import hmac
import http.client
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

from oslo_config.cfg import ConfigOpts

from climate.config.registry import Misconfigured
from climate.core.errors import InvalidInput
from climate.core.notifications.message import Notification
from climate.core.notifications.subscription import (
    Delivery,
    Format,
    Outcome,
    WebhookRules,
    check_address,
    check_url,
    key_of,
    where,
)
from climate.notifications import chat_message
from climate.notifications.deadline import cut_after, resolve
from climate.notifications.rendering import Site, site
from climate.notifications.secret_encryption import UnreadableSecret, decrypt

# A delivery whose response takes longer (seconds) is slow: see ``Outcome``.
_SLOW = 1.0
# Payload keys that remain when a notification is too large.
_ESSENCE = ("seq", "message_id", "lease_id", "project_id", "name", "status", "starts_in")


class WebhookPoster:
    """Sends notifications to the receivers of webhook subscriptions. Thread-safe."""

    def __init__(
        self, rules: WebhookRules, source: str, cafile: str | None = None, links: Site | None = None
    ) -> None:
        """Prepare a sender.

        ``source`` is the value of the attribute ``source`` in the CloudEvents that it sends.
        ``cafile`` is the path of a file with the certificate authorities that the sender trusts
        (None: those that the system trusts). Chat messages link to ``links`` (None: they have no
        links). Raises OSError if the file is unusable.
        """
        self._rules = rules
        self._source, self._site = source, links or Site()
        self._tls = ssl.create_default_context(cafile=cafile)

    def post(self, delivery: Delivery, payload: Mapping[str, Any]) -> Outcome:
        """Send the notification of ``delivery`` with this ``payload``; return the outcome."""
        form = delivery.subscription.format
        if form is Format.CLOUDEVENTS:
            body = event_body(delivery.notification, payload, self._source, self._rules.largest)
            media_type = "application/cloudevents+json; charset=UTF-8"
        else:
            body = chat_message.body(form, delivery, payload, self._site)
            media_type = "application/json; charset=UTF-8"
        headers = {"Content-Type": media_type, "User-Agent": "climate"}
        began = time.monotonic()
        try:
            secret = decrypt(delivery.secret, self._rules.secret_keys)
            headers |= signature(delivery, secret, body)
            status, retry_after = self._send(delivery.subscription.url, body, headers)
        except UnreadableSecret as error:
            return Outcome(reason=str(error))
        except (OSError, ValueError, http.client.HTTPException, InvalidInput) as error:
            return Outcome(reason=self._why(error), slow=True)
        if status in range(200, 300):
            return Outcome(slow=time.monotonic() - began > _SLOW)
        text = f"HTTP {status}"
        if status in range(300, 400):
            text += ": redirects are not followed"
        return Outcome(
            reason=text,
            gone=status == http.client.GONE,
            retry_after=_seconds(retry_after),
            slow=True,
        )

    def _send(self, url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        """Post ``body`` to ``url``; return the status and the header Retry-After of the response.

        Raises InvalidInput, OSError, ValueError, HTTPException.
        """
        check_url(url, self._rules)  # the rules may have changed since the subscription was created
        host, port = where(url)
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        with self._connected(host, port, secure=parts.scheme == "https") as connected:
            connection = http.client.HTTPConnection(host, port)
            connection.sock = connected
            all_headers = {"Host": parts.netloc, "Connection": "close", **headers}
            connection.request("POST", path, body, all_headers)
            response = connection.getresponse()
            return response.status, response.headers.get("Retry-After", "")

    @contextmanager
    def _connected(self, host: str, port: int, *, secure: bool) -> Iterator[socket.socket]:
        """Yield a connection to ``host``, at an IP address to which webhooks may go.

        If ``secure`` is set, the connection uses TLS. At the time-out, a timer cuts the connection,
        and this context manager raises TimeoutError.
        """
        deadline = time.monotonic() + self._rules.timeout
        with closing(self._connect(host, port, deadline)) as plain:
            connected = plain
            if secure:
                connected = self._tls.wrap_socket(plain, server_hostname=host)
            try:
                with cut_after(deadline - time.monotonic(), lambda: connected):
                    yield connected
            finally:
                connected.close()
                # A response that was cut may look complete.
                if time.monotonic() >= deadline:
                    raise TimeoutError

    def _connect(self, host: str, port: int, deadline: float) -> socket.socket:
        failure: OSError | InvalidInput = OSError("there is no such name")
        addresses = resolve(host, port, deadline - time.monotonic())
        for family, kind, protocol, _, address in addresses:
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

    def _why(self, error: Exception) -> str:
        """Return why a delivery failed, as a text for the owner of the subscription."""
        if isinstance(error, InvalidInput):
            return error.message
        if isinstance(error, TimeoutError):
            return f"no answer within {self._rules.timeout:g} s"
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {error.verify_message}"
        if isinstance(error, socket.gaierror):
            return "its name cannot be resolved"
        if isinstance(error, ConnectionRefusedError):
            return "it refuses connections"
        return "the connection broke, or the response is not HTTP"


def event_body(
    notification: Notification, payload: Mapping[str, Any], source: str, largest: int
) -> bytes:
    """Return a notification as a CloudEvent 1.0 in JSON.

    All attributes are in the body (structured mode), so that the signature covers them.
    ``sequence`` is the number of the notification, padded with zeros, because receivers compare it
    as text. If the event would have more than ``largest`` bytes, its ``data`` contains only the
    essential keys of the payload (such as ids and status), and ``"shortened": true``.
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
    body = _packed({**event, "data": dict(payload)})
    if len(body) <= largest:
        return body
    essence = {name: payload[name] for name in _ESSENCE if name in payload}
    return _packed({**event, "data": {**essence, "shortened": True}})


def signature(delivery: Delivery, secret: str, body: bytes) -> dict[str, str]:
    """Return the headers with which a receiver checks that climate sent ``body``.

    They follow the specification Standard Webhooks: id, time, and a signature with ``secret``.
    https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
    """
    id_, stamp = delivery.notification.message_id, str(int(delivery.at.timestamp()))
    signed = f"{id_}.{stamp}.".encode() + body
    digest = hmac.new(key_of(secret), signed, hashlib.sha256).digest()
    return {
        "webhook-id": id_,
        "webhook-timestamp": stamp,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def for_config(conf: ConfigOpts, rules: WebhookRules) -> WebhookPoster:
    """Return the webhook sender for the configuration.

    Raises Misconfigured if the file ``[notifications] webhook_cafile`` is unusable.
    """
    options = conf.notifications
    try:
        return WebhookPoster(rules, options.publisher_id, options.webhook_cafile, site(conf))
    except (OSError, ssl.SSLError) as error:
        raise Misconfigured(f"[notifications] webhook_cafile: {error}") from error


def _packed(event: Mapping[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()


def _seconds(retry_after: str) -> float:
    """Return the pause in seconds that a receiver requests in the header Retry-After.

    Returns 0 for a date or an invalid value.
    """
    return float(retry_after) if re.fullmatch(r"\d{1,9}", retry_after, re.ASCII) else 0.0
