"""The pages behind the links in mails: confirm an address, and unsubscribe.

GET shows a page with a button and changes nothing, because mail programs and scanners open links by
themselves. POST acts: the button sends it, and so do mail programs (RFC 8058). Neither needs a
token.
"""

import base64
import hashlib
from collections.abc import Callable
from functools import partial

from climate.api.call import Answer, Api
from climate.api.route import Route
from climate.core.errors import NotFound
from climate.core.notifications.mail import Purpose, address_of
from climate.core.notifications.subscription import Subscription, SubscriptionStatus
from climate.manager.notifications import email_links
from climate.notifications.rendering import render

_STYLE = (
    "body{margin:0;font:1rem/1.5 sans-serif;color-scheme:light dark}"
    "main{max-width:36rem;margin:3rem auto;padding:0 1rem}"
    "button{font:inherit;padding:.5rem 1.5rem}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",  # the address of the page is a secret
}
_QUESTIONS = {
    Purpose.CONFIRM: (
        "Confirm your address",
        "climate will send notifications about leases of project {project} to {address}.",
        "Confirm",
    ),
    Purpose.UNSUBSCRIBE: (
        "Unsubscribe",
        "climate will send no more notifications of this subscription to {address}.",
        "Unsubscribe",
    ),
}
_DONE = {
    Purpose.CONFIRM: (
        "Your address is confirmed",
        "{address} can receive notifications about leases of project {project}. {state}",
    ),
    Purpose.UNSUBSCRIBE: (
        "You have unsubscribed",
        "climate sends no more notifications of this subscription to {address}.",
    ),
}

_STATES = {
    SubscriptionStatus.ACTIVE: "climate sends them from now on.",
    SubscriptionStatus.SUSPENDED: "climate sends none until the project resumes the subscription.",
}


def show_confirm(api: Api, secret: str) -> Answer:
    """Return a page with a button that confirms an e-mail address."""
    return _question(api, secret, Purpose.CONFIRM)


def confirm(api: Api, secret: str) -> Answer:
    """Confirm an e-mail address; the token in the path is the only credential."""
    return _done(partial(email_links.confirm, api.runtime), secret, Purpose.CONFIRM)


def show_unsubscribe(api: Api, secret: str) -> Answer:
    """Return a page with a button that ends a subscription by e-mail."""
    return _question(api, secret, Purpose.UNSUBSCRIBE)


def unsubscribe(api: Api, secret: str) -> Answer:
    """End a subscription by e-mail (RFC 8058); the token in the path is the only credential."""
    return _done(partial(email_links.unsubscribe, api.runtime), secret, Purpose.UNSUBSCRIBE)


ROUTES = [
    Route("GET", "/email/confirm/<secret>", show_confirm),
    Route("POST", "/email/confirm/<secret>", confirm),
    Route("GET", "/email/unsubscribe/<secret>", show_unsubscribe),
    Route("POST", "/email/unsubscribe/<secret>", unsubscribe),
]


def _question(api: Api, secret: str, purpose: Purpose) -> Answer:
    def find(link: str) -> Subscription:
        return email_links.find(api.runtime, link, purpose)

    title, text, action = _QUESTIONS[purpose]
    return _answer(find, secret, title, text, action)


def _done(act: Callable[[str], Subscription], secret: str, purpose: Purpose) -> Answer:
    title, text = _DONE[purpose]
    return _answer(act, secret, title, text, "")


def _answer(
    act: Callable[[str], Subscription], secret: str, title: str, text: str, action: str
) -> Answer:
    """Call ``act`` with the link, and return a page; the same page for each link that is invalid.

    If ``action`` is not empty, the page has a button with this text.
    """
    try:
        subscription = act(secret)
    except NotFound as error:
        return _page("This link does not work", error.message, ""), 404, _HEADERS
    values = {
        "project": subscription.project_id,
        "address": address_of(subscription.url),
        "state": _STATES[subscription.status],
    }
    return _page(title, text.format(**values), action), 200, _HEADERS


def _page(title: str, text: str, action: str) -> str:
    values = {"title": title, "text": text, "action": action, "style": _STYLE}
    return render("page.html", values)
