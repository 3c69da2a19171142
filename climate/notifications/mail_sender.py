"""Mail sender: delivers mails to the SMTP server of the operator.

A failure is one of three kinds. If the server does not work (no connection, no TLS, no sign-in, or
421), climate tries again until it does: the receiver is not to blame. If the server answers 4xx,
climate retries a limited number of times. If it answers 5xx, the mail is undeliverable.

If the connection breaks after the text was sent, climate cannot know whether the server accepted
the mail, and sends it again with the same Message-ID (at least once).
"""

import logging
import smtplib
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from email.message import EmailMessage

from oslo_config.cfg import ConfigOpts

from climate.config.mail import NONE, STARTTLS, TLS, MailServer, mail_server
from climate.config.registry import Misconfigured
from climate.core.notifications.feed import Entry
from climate.core.notifications.subscription import Confirmation, Delivery, Outcome
from climate.core.notifications.wording import one_line
from climate.notifications.deadline import cut_after, resolve
from climate.notifications.mail_message import Composer, receiver, serialized
from climate.notifications.rendering import site
from climate.notifications.secret_encryption import UnreadableSecret, decrypt

LOG = logging.getLogger(__name__)

# A delivery that takes longer (seconds) counts as slow.
_SLOW = 2.0
# Replies of the server: it is ready, it stops, and the mail is too large.
_READY, _NO_SERVICE, _TOO_LARGE = 220, 421, 552
_PERMANENT = range(500, 600)
_WAITING = "the mail server does not accept mails at present: climate tries again until it does"


class MailSender:
    """Sends mails to the receivers of subscriptions by e-mail. Thread-safe."""

    def __init__(self, server: MailServer, composer: Composer, keys: Sequence[str]) -> None:
        """Prepare a sender; it connects for each mail.

        ``keys`` decrypt the secrets of subscriptions. Raises OSError if the file with certificate
        authorities cannot be used.
        """
        self._server, self._composer, self._keys = server, composer, tuple(keys)
        self._tls = ssl.create_default_context(cafile=server.cafile)
        self._own_name = socket.getfqdn()  # once: the query of a name may take long

    def send(self, item: Delivery | Confirmation, entries: Sequence[Entry] = ()) -> Outcome:
        """Send the mail for ``item``; return the outcome.

        The mail about a notification contains ``entries`` as a calendar file.
        """
        try:
            message = self._compose(item, decrypt(item.secret, self._keys), entries)
        except UnreadableSecret as error:
            return Outcome(reason=str(error))
        began = time.monotonic()
        outcome = self._deliver(message, receiver(item.subscription))
        is_slow = outcome.reason is not None or time.monotonic() - began > _SLOW
        return Outcome(
            reason=outcome.reason,
            permanent=outcome.permanent,
            is_ours=outcome.is_ours,
            slow=is_slow,
        )

    def _compose(
        self, item: Delivery | Confirmation, secret: str, entries: Sequence[Entry]
    ) -> EmailMessage:
        if isinstance(item, Confirmation):
            return self._composer.confirmation(item, secret)
        if item.digest is not None:
            return self._composer.digest(item, secret)
        return self._composer.notification(item, secret, entries)

    def _deliver(self, message: EmailMessage, to: str) -> Outcome:
        """Send a mail to one receiver, in a connection of its own."""
        client = self._client()
        with cut_after(self._server.timeout, lambda: client.sock):
            try:
                self._connect(client)
            except (OSError, smtplib.SMTPException, ValueError) as error:
                client.close()
                return self._unavailable(error)
            try:
                client.sendmail(self._composer.sender.addr_spec, [to], serialized(message))
            except (OSError, smtplib.SMTPException) as error:
                return self._judge(error)
            finally:
                with suppress(OSError, smtplib.SMTPException):
                    client.quit()
                client.close()
        return Outcome()

    def _client(self) -> smtplib.SMTP:
        timeout = self._server.timeout
        if self._server.security == TLS:
            return smtplib.SMTP_SSL(
                local_hostname=self._own_name, timeout=timeout, context=self._tls
            )
        return smtplib.SMTP(local_hostname=self._own_name, timeout=timeout)

    def _connect(self, client: smtplib.SMTP) -> None:
        """Connect, encrypt the connection as configured, and sign in.

        Raises OSError, SMTPException. If the server offers no TLS, this is an error: climate never
        sends a mail or a password in clear because the server wants it so.
        """
        server = self._server
        ends_at = time.monotonic() + server.timeout
        # The name that the certificate must have. Only the constructor has a parameter for it, and
        # connects at once, when nothing could cut the connection yet.
        client._host = server.host  # type: ignore[attr-defined]  # noqa: SLF001 - as above
        code, text = self._greeting(client, ends_at)
        if code != _READY:
            raise smtplib.SMTPConnectError(code, text)
        client.ehlo_or_helo_if_needed()
        if server.security == STARTTLS:
            client.starttls(context=self._tls)
            client.ehlo_or_helo_if_needed()
        if server.user and server.password:
            client.login(server.user, server.password)

    def _greeting(self, client: smtplib.SMTP, ends_at: float) -> tuple[int, bytes]:
        """Connect to the first address that answers, and return the reply of the server."""
        server = self._server
        failure = OSError("there is no such name")
        for *_, address in resolve(server.host, server.port, ends_at - time.monotonic()):
            if (left := ends_at - time.monotonic()) <= 0:
                raise TimeoutError
            client.timeout = left
            try:
                return client.connect(str(address[0]), server.port)
            except OSError as error:
                client.close()
                failure = error
        raise failure

    def _judge(self, error: Exception) -> Outcome:
        """Return the outcome of a mail that the connected server did not accept."""
        code, text = 0, ""
        if isinstance(error, smtplib.SMTPRecipientsRefused):
            [(code, reply)] = error.recipients.values()
            text = _decoded(reply)
        elif isinstance(error, smtplib.SMTPResponseException):
            code, text = error.smtp_code, _decoded(error.smtp_error)
        is_sender = isinstance(error, smtplib.SMTPSenderRefused) and code != _TOO_LARGE
        if code == _NO_SERVICE or is_sender:
            return self._unavailable(error)
        if not code:
            LOG.warning("the connection to the mail server broke: %s", error)
            return Outcome(reason="the connection to the mail server broke")
        reason = f"the mail server rejected it: {code} {text}"
        return Outcome(reason=reason, permanent=code in _PERMANENT)

    def _unavailable(self, error: Exception) -> Outcome:
        """Return the outcome if the server does not work; the log has the details."""
        host, port = self._server.host, self._server.port
        LOG.warning("the mail server %s:%s accepts no mails: %s", host, port, error)
        return Outcome(reason=_WAITING, is_ours=True)


def _decoded(reply: bytes | str) -> str:
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply
    return one_line(text)


def for_config(conf: ConfigOpts, keys: Sequence[str]) -> MailSender | None:
    """Return the mail sender for the configuration; None if climate sends no e-mail.

    ``keys`` decrypt the secrets of subscriptions. Raises Misconfigured.
    """
    try:
        server = mail_server(conf)
        if server is None:
            return None
        if server.security == NONE:
            LOG.info("[email] security is none: mails to %s are not encrypted", server.host)
        return MailSender(server, Composer(server.sender, site(conf)), keys)
    except ValueError as error:
        raise Misconfigured(str(error)) from None
    except (OSError, ssl.SSLError) as error:
        raise Misconfigured(f"[email] cafile: {error}") from error
