"""Renders a notification as a message that the webhook of a chat service accepts.

Values that users choose, such as names of leases, are shown as text: they cannot add links,
mentions or formatting with consequences. Each service escapes in its own way:

- Slack decodes ``&amp;``, ``&lt;`` and ``&gt;``, so a text cannot contain ``<!channel>`` or a link.
  https://docs.slack.dev/messaging/formatting-message-text
- Matrix: the bridge hookshot takes ``text`` and ``html``. It converts ``text`` from Markdown only
  if ``html`` is absent. https://matrix-org.github.io/matrix-hookshot/latest/setup/webhooks.html
- Teams: an Adaptive Card in a message, as "When a Teams webhook request is received" expects.
  Texts are runs of a RichTextBlock, in which Teams interprets no Markdown.
  https://adaptivecards.io/explorer/RichTextBlock.html
"""

import json
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from climate.core.notifications.mail import zone
from climate.core.notifications.subscription import Delivery, Format
from climate.core.notifications.wording import Wording, describe
from climate.notifications.rendering import Site

# Slack's longest header, and most fields of a section.
_LONGEST_HEADER, _MOST_FIELDS = 150, 10
_OPEN = "Open the lease"


def body(form: Format, delivery: Delivery, payload: Mapping[str, Any], site: Site) -> bytes:
    """Return the JSON of a chat message about the notification in ``delivery``.

    ``payload`` is the payload of the notification. The message links to the lease on ``site``, if
    this has an address. Its size is limited, because names and lists are shortened.
    """
    of = zone(delivery.subscription.time_zone)
    wording = describe(delivery.notification, payload, delivery.at, of)
    message = _FORMS[form](wording, site.lease_url(wording.lease_id))
    return json.dumps(message, separators=(",", ":")).encode()


def _slack(wording: Wording, url: str | None) -> dict[str, Any]:
    """Return a message for an incoming webhook of Slack: blocks, and a text for notifications."""
    title = wording.title
    header = title if len(title) <= _LONGEST_HEADER else f"{title[: _LONGEST_HEADER - 3]}..."
    fields = [_mrkdwn(f"*{label}*\n{_slack_text(value)}") for label, value in wording.facts]
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": header, "emoji": False}}
    ]
    if fields:
        blocks.append({"type": "section", "fields": fields[:_MOST_FIELDS]})
    lines = [f"\u2022 {_slack_text(text)}" for text in wording.advice]
    if url:
        lines.append(f"<{_slack_text(url)}|{_OPEN}>")
    if lines:
        blocks.append({"type": "section", "text": _mrkdwn("\n".join(lines))})
    return {"text": _slack_text(title), "blocks": blocks}


def _mrkdwn(text: str) -> dict[str, Any]:
    # ``verbatim``: Slack makes no links of names and channels by itself.
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _slack_text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _matrix(wording: Wording, url: str | None) -> dict[str, Any]:
    """Return a message for a generic webhook of hookshot: the same as plain text and as HTML."""
    lines = [wording.title, *(f"{label}: {value}" for label, value in wording.facts)]
    lines += [f"- {text}" for text in wording.advice] + ([url] if url else [])
    facts = "<br>".join(
        f"{escape(label)}: <strong>{escape(value)}</strong>" for label, value in wording.facts
    )
    advice = "".join(f"<li>{escape(text)}</li>" for text in wording.advice)
    parts = (
        f"<p><strong>{escape(wording.title)}</strong></p>",
        f"<p>{facts}</p>" if facts else "",
        f"<ul>{advice}</ul>" if advice else "",
        f'<p><a href="{escape(url)}">{_OPEN}</a></p>' if url else "",
    )
    return {"text": _unmentioned("\n".join(lines)), "html": _unmentioned("".join(parts))}


def _unmentioned(text: str) -> str:
    """Return a text that notifies not everyone in a room of Matrix: ``@room`` is split."""
    return text.replace("@room", "@\u2060room")


def _teams(wording: Wording, url: str | None) -> dict[str, Any]:
    """Return a message for a workflow of Teams: an Adaptive Card."""
    title = _rich({"text": wording.title, "weight": "Bolder", "size": "Medium"})
    facts = [
        _rich({"text": f"{label}: ", "weight": "Bolder"}, {"text": value})
        for label, value in wording.facts
    ]
    advice = [_rich({"text": f"\u2022 {text}"}) for text in wording.advice]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.2",
        "fallbackText": wording.title,
        "body": [title, *facts, *advice],
        "actions": [{"type": "Action.OpenUrl", "title": _OPEN, "url": url}] if url else [],
    }
    attachment = {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": card,
    }
    return {"type": "message", "attachments": [attachment]}


def _rich(*runs: Mapping[str, str]) -> dict[str, Any]:
    inlines = [{"type": "TextRun", **run} for run in runs]
    return {"type": "RichTextBlock", "spacing": "Small", "inlines": inlines}


_FORMS: Mapping[Format, Callable[[Wording, str | None], dict[str, Any]]] = {
    Format.SLACK: _slack,
    Format.MATRIX: _matrix,
    Format.TEAMS: _teams,
}
