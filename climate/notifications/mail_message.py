"""Composes mails: a notification, a digest, and the confirmation of an address.

Each mail has the same text as plain text and as HTML. Its Message-ID follows from what it reports,
so a mail that is delivered twice has the same one, and mail programs can recognise it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Any

from climate.core.notifications.feed import Entry
from climate.core.notifications.mail import (
    CONFIRMED_WITHIN,
    Purpose,
    address_of,
    link,
    zone,
)
from climate.core.notifications.message import Notification, payload_when_sent
from climate.core.notifications.subscription import Confirmation, Delivery, Frequency, Subscription
from climate.core.notifications.wording import describe, one_line, show_time
from climate.notifications.calendar_file import render as render_calendar
from climate.notifications.rendering import Site, render

# All bytes are ASCII, as not every server accepts others. Lines are as short as MIME requires.
_POLICY = SMTP.clone(cte_type="7bit", max_line_length=76)
# Headers are not folded, so that no link in them is broken. SMTP allows lines of 998 characters.
_POLICY_OF_HEADERS = _POLICY.clone(max_line_length=998)
_PERIODS = {Frequency.HOURLY: "hour", Frequency.DAILY: "day"}


@dataclass(frozen=True, slots=True)
class Composer:
    """Composes mails from ``sender``, with links to ``site``."""

    sender: Address
    site: Site

    def notification(
        self, delivery: Delivery, secret: str, entries: Sequence[Entry]
    ) -> EmailMessage:
        """Return the mail about a notification.

        ``secret`` is the secret of the subscription as plain text. The mail has a calendar file
        with ``entries``, if there are any.
        """
        item, subscription = delivery.notification, delivery.subscription
        payload = payload_when_sent(item, delivery.at)
        wording = describe(item, payload, delivery.at, zone(subscription.time_zone))
        values = {
            "wording": wording,
            "url": self.site.lease_url(wording.lease_id),
            "has_calendar": bool(entries),
        }
        message = self._with_unsubscribe(
            delivery, secret, wording.title, ("notification", values), item.message_id
        )
        if entries:
            content = render_calendar(entries[0].summary, entries, self.site.console_url)
            message.add_attachment(content, subtype="calendar", filename="lease.ics", cte="base64")
        return message

    def digest(self, delivery: Delivery, secret: str) -> EmailMessage:
        """Return the mail about all notifications of the digest in ``delivery``."""
        assert delivery.digest is not None  # noqa: S101 - for mypy
        seqs, listed = delivery.digest.seqs, delivery.digest.listed
        subscription = delivery.subscription
        period = _PERIODS.get(subscription.frequency, "time")
        title = f"{len(seqs)} notification{'' if len(seqs) == 1 else 's'} of the last {period}"
        if delivery.letter is not None:
            title = f"{len(seqs)} notification{'' if len(seqs) == 1 else 's'}, delivered again"
        values = {
            "items": [self._listed(item, delivery) for item in listed],
            "more": len(seqs) - len(listed),
        }
        digest = hashlib.sha256(repr(seqs).encode()).hexdigest()[:32]
        return self._with_unsubscribe(
            delivery, secret, title, ("digest", values), f"digest.{digest}"
        )

    def confirmation(self, request: Confirmation, secret: str) -> EmailMessage:
        """Return the mail that contains the link by which an address is confirmed."""
        subscription = request.subscription
        token = link(subscription, secret, Purpose.CONFIRM)
        values = {
            "user": one_line(subscription.user_id),
            "project": one_line(subscription.project_id),
            "confirm_url": self.site.link_url(Purpose.CONFIRM, token),
            "days": CONFIRMED_WITHIN.days,
        }
        digest = hashlib.sha256(token.encode()).hexdigest()[:32]
        title = "Confirm your address for notifications about leases"
        return self._message(request, title, ("confirm", values), f"confirm.{digest}")

    def _listed(self, item: Notification, delivery: Delivery) -> dict[str, Any]:
        """Return an item of a digest, in words of the moment at which it was written."""
        of, at = zone(delivery.subscription.time_zone), item.created_at
        wording = describe(item, payload_when_sent(item, at), at, of)
        url = self.site.lease_url(wording.lease_id)
        return {"wording": wording, "at": show_time(at, of), "url": url}

    def _with_unsubscribe(
        self,
        delivery: Delivery,
        secret: str,
        title: str,
        content: tuple[str, Mapping[str, Any]],
        id_: str,
    ) -> EmailMessage:
        """Return a mail with a link that ends the subscription, in its headers and its text."""
        subscription = delivery.subscription
        token = link(subscription, secret, Purpose.UNSUBSCRIBE)
        url = self.site.link_url(Purpose.UNSUBSCRIBE, token)
        template, values = content
        values = {"unsubscribe_url": url, "project": one_line(subscription.project_id), **values}
        message = self._message(delivery, title, (template, values), id_)
        message["List-Unsubscribe"] = f"<{url}>"
        if url.startswith("https:"):  # as RFC 8058 requires
            message["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
        return message

    def _message(
        self,
        item: Delivery | Confirmation,
        title: str,
        content: tuple[str, Mapping[str, Any]],
        id_: str,
    ) -> EmailMessage:
        template, values = content
        values = {"title": title, **values}
        message = EmailMessage(_POLICY)
        message["From"] = self.sender
        message["To"] = Address(addr_spec=receiver(item.subscription))
        message["Subject"] = one_line(title)
        message["Date"] = format_datetime(item.at)
        message["Message-ID"] = f"<{id_}.{item.subscription.id}@{self.sender.domain}>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(render(f"{template}.txt", values))
        message.add_alternative(render(f"{template}.html", values), subtype="html")
        return message


def serialized(message: EmailMessage) -> bytes:
    """Return a mail as the bytes to send."""
    return message.as_bytes(policy=_POLICY_OF_HEADERS)


def receiver(subscription: Subscription) -> str:
    """Return the e-mail address of a subscription by e-mail."""
    address = address_of(subscription.url)
    assert address is not None  # noqa: S101 - only subscriptions by e-mail have mails
    return address
