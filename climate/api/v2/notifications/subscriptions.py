"""The routes of ``/v2/subscriptions``: webhooks and e-mail for notifications; dead letters."""

from collections.abc import Mapping, Sequence
from typing import Any

from flask import request

from climate.api.call import Answer, Call
from climate.api.v2.http import paging, validation
from climate.api.v2.notifications import schemas
from climate.core.errors import InvalidInput, NotFound
from climate.core.notifications import mail
from climate.core.notifications.subscription import (
    Kind,
    Subscription,
    SubscriptionStatus,
    check_url,
)
from climate.core.page import SUBSCRIPTION_SORTS
from climate.manager.notifications import subscriptions
from climate.manager.notifications.subscriptions import Change, New

_FILTERS = ("event_types", "lease_id", "resource_type")


def index(call: Call) -> Answer:
    """List subscriptions of your project, or of all projects."""
    query = validation.query(schemas.SUBSCRIPTION_QUERY)
    if query["all_projects"]:
        call.require("subscriptions:get_all")
    page = paging.page({**query, "sort": "created"})
    project_id = None if query["all_projects"] else call.caller.project_id
    with_all_projects = call.may("notifications:get_all")
    part = subscriptions.find_all(
        call.runtime, project_id, page, with_all_projects=with_all_projects
    )
    following = paging.following(page, part, SUBSCRIPTION_SORTS)
    return {"subscriptions": _bodies(call, part.items), "next": following}, 200


def create(call: Call) -> Answer:
    """Create a subscription: a URL or an e-mail address to which climate sends notifications."""
    data = validation.load(schemas.SUBSCRIPTION_REQUEST, validation.body(call))
    if data["kind"] is Kind.EMAIL:
        call.require("subscriptions:post_email")
    url = _checked_receiver(call, data)
    if data["all_projects"]:
        call.require("notifications:get_all")
    new = New(
        project_id=call.caller.project_id,
        user_id=call.caller.user_id,
        all_projects=data["all_projects"],
        kind=data["kind"],
        url=url or "",
        secret=data.get("secret"),
    )
    settings = Change(wanted=_filters(data), **_settings(data))
    created = subscriptions.create(call.runtime, new, settings)
    location = f"{request.root_path}{request.path}/{created.id}"
    return _body(call, created), 201, {"Location": location}


def show(call: Call, subscription_id: str) -> Answer:
    """Show a subscription."""
    return _body(call, _visible(call, subscription_id)), 200


def update(call: Call, subscription_id: str) -> Answer:
    """Change a subscription, suspend it or resume it."""
    before = _changeable(call, subscription_id, "subscriptions:put")
    data = validation.load(schemas.SUBSCRIPTION_CHANGE, validation.body(call))
    for name, texts in schemas.foreign_fields(before.kind, data).items():
        raise validation.placed(InvalidInput(f"{name}: {texts[0]}"), (name,))
    is_resumed = data.get("status") is SubscriptionStatus.ACTIVE
    if before.kind is Kind.EMAIL and ("address" in data or is_resumed):
        # Both can send a confirmation to the address.
        call.require("subscriptions:post_email", before.project_id)
    change = Change(
        url=_checked_receiver(call, data),
        secret=data.get("secret"),
        wanted=_filters(data),
        status=data.get("status"),
        **_settings(data),
    )
    return _body(call, subscriptions.update(call.runtime, before.id, change)), 200


def delete(call: Call, subscription_id: str) -> Answer:
    """Remove a subscription."""
    validation.no_query()
    subscription = _changeable(call, subscription_id, "subscriptions:delete")
    subscriptions.delete(call.runtime, subscription.id)
    return None, 204


def dead_letters(call: Call, subscription_id: str) -> Answer:
    """List dead letters: notifications that the receiver did not accept."""
    subscription = _visible(call, subscription_id)
    query = validation.query(schemas.DEAD_LETTER_QUERY)
    letters = subscriptions.find_dead_letters(
        call.runtime, subscription.id, query["after"], query["limit"]
    )
    return schemas.DEAD_LETTER_PAGE.dump({"dead_letters": letters}), 200


def redeliver(call: Call, subscription_id: str) -> Answer:
    """Send dead letters again: notifications that the receiver did not accept."""
    subscription = _changeable(call, subscription_id, "subscriptions:put")
    data = validation.load(schemas.REDELIVERY, validation.body(call))
    count = subscriptions.redeliver(call.runtime, subscription.id, data.get("seqs"))
    return {"redelivering": count}, 202


def _visible(call: Call, subscription_id: str) -> Subscription:
    """Return the subscription. Raises NotFound if it does not exist or the caller may not see it.

    If the subscription receives the notifications of all projects, the policy must also allow the
    caller ``notifications:get_all``. Otherwise the caller could change the URL of the subscription,
    and so receive notifications of other projects.
    """
    absent = f"There is no subscription {subscription_id}"
    subscription = call.visible(subscriptions.get, subscription_id, "subscriptions:get", absent)
    if subscription.all_projects and not call.may("notifications:get_all"):
        raise NotFound(absent)
    return subscription


def _changeable(call: Call, subscription_id: str, rule: str) -> Subscription:
    """Return the subscription if the policy ``rule`` allows the caller to change it.

    Raises NotFound if the caller may not even read the subscription, and Forbidden if the caller
    may read it but not change it.
    """
    subscription = _visible(call, subscription_id)
    call.require(rule, subscription.project_id)
    return subscription


def _checked_receiver(call: Call, data: Mapping[str, Any]) -> str | None:
    """Return the URL of the receiver in a request; None if the request has none.

    Raises InvalidInput if climate may not send notifications there.
    """
    name = "address" if "address" in data else "url"
    if name not in data:
        return None
    try:
        return _receiver(call, name, data[name])
    except InvalidInput as error:
        errors = [{"pointer": f"#/{name}", "detail": error.message}]
        raise InvalidInput(f"{name}: {error.message}", {"errors": errors}) from None


def _receiver(call: Call, name: str, value: str) -> str:
    settings = call.runtime.settings
    if name == "url":
        check_url(value, settings.webhooks)
        return value
    if settings.email is None:
        raise InvalidInput(
            "This service sends no e-mail: the operator has not configured a mail server"
            " ([email] server)"
        )
    mail.check_address(value, settings.email)
    return mail.url_of(value)


def _settings(data: Mapping[str, Any]) -> dict[str, Any]:
    leads = data.get("before_start_leads")
    return {
        **{name: data.get(name) for name in ("after", "format", "frequency", "time_zone")},
        # In order, without duplicates.
        "before_start_leads": None if leads is None else tuple(sorted({*leads}, reverse=True)),
    }


def _filters(data: Mapping[str, Any]) -> dict[str, Any]:
    filters = {name: data[name] for name in _FILTERS if name in data}
    if "event_types" in filters:
        filters["event_types"] = tuple(filters["event_types"])
    return filters


def _body(call: Call, subscription: Subscription) -> dict[str, Any]:
    [body] = _bodies(call, [subscription])
    return body


def _bodies(call: Call, items: Sequence[Subscription]) -> list[dict[str, Any]]:
    counts = subscriptions.count_dead_letters(call.runtime, [item.id for item in items])
    return [
        {
            **schemas.SUBSCRIPTION.dump(item),
            "address": mail.address_of(item.url),
            "dead_letters": counts.get(item.id, 0),
        }
        for item in items
    ]
