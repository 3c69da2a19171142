"""``/v2/subscriptions``: having notifications sent, and what became of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from flask import request

from climate.api.call import Answer, Call
from climate.api.v2.http import paging, queries, validation
from climate.api.v2.notifications import schemas
from climate.core.errors import InvalidInput, NotFound
from climate.core.notifications.subscription import Subscription, check_url
from climate.core.page import Page
from climate.manager.notifications import subscriptions
from climate.manager.notifications.subscriptions import Change, Owner

_FILTERS = ("event_types", "lease_id", "resource_type")


def index(call: Call) -> Answer:
    """List the subscriptions of the project, or of all projects to those who may see them."""
    asked = validation.query(queries.SUBSCRIPTION_QUERY)
    if asked["all_projects"]:
        call.require("subscriptions:get_all")
    page = paging.page({**asked, "sort": "created"})
    project_id = None if asked["all_projects"] else call.caller.project_id
    found = subscriptions.find_all(call.runtime, project_id, page.after, page.limit + 1)
    bodies = _bodies(call, found[: page.limit])
    return {"subscriptions": bodies, "next": _beyond(page, found)}, 200


def create(call: Call) -> Answer:
    """Subscribe."""
    data = validation.load(schemas.SUBSCRIPTION_REQUEST, validation.body(call))
    _check_url(call, data["url"])
    if data["all_projects"]:
        call.require("notifications:get_all")
    owner = Owner(
        project_id=call.caller.project_id,
        user_id=call.caller.user_id,
        all_projects=data["all_projects"],
    )
    asked = Change(wanted=_filters(data), after=data.get("after"))
    made = subscriptions.create(call.runtime, owner, data["url"], data["secret"], asked)
    location = f"{request.root_path}{request.path}/{made.id}"
    return _body(call, made), 201, {"Location": location}


def show(call: Call, subscription_id: str) -> Answer:
    """Show a subscription."""
    return _body(call, _visible(call, subscription_id)), 200


def update(call: Call, subscription_id: str) -> Answer:
    """Change a subscription."""
    before = _changeable(call, subscription_id, "subscriptions:put")
    data = validation.load(schemas.SUBSCRIPTION_CHANGE, validation.body(call))
    if "url" in data:
        _check_url(call, data["url"])
    change = Change(
        url=data.get("url"),
        secret=data.get("secret"),
        wanted=_filters(data),
        status=data.get("status"),
        after=data.get("after"),
    )
    return _body(call, subscriptions.update(call.runtime, before.id, change)), 200


def delete(call: Call, subscription_id: str) -> Answer:
    """Remove a subscription."""
    validation.no_query()
    found = _changeable(call, subscription_id, "subscriptions:delete")
    subscriptions.delete(call.runtime, found.id)
    return None, 204


def dead_letters(call: Call, subscription_id: str) -> Answer:
    """List what was not taken."""
    found = _visible(call, subscription_id)
    asked = validation.query(queries.DEAD_LETTER_QUERY)
    letters = subscriptions.find_dead_letters(
        call.runtime, found.id, asked["after"], asked["limit"]
    )
    return schemas.DEAD_LETTER_PAGE.dump({"dead_letters": letters}), 200


def redeliver(call: Call, subscription_id: str) -> Answer:
    """Have dead letters sent again."""
    found = _changeable(call, subscription_id, "subscriptions:put")
    data = validation.load(schemas.REDELIVERY, validation.body(call))
    count = subscriptions.redeliver(call.runtime, found.id, data.get("seqs"))
    return {"redelivering": count}, 202


def _visible(call: Call, subscription_id: str) -> Subscription:
    """Return the subscription; one that the caller may not see does not exist for it."""
    try:
        found = subscriptions.get(call.runtime, subscription_id)
    except NotFound:
        found = None
    if found is None or not call.may("subscriptions:get", found.project_id):
        raise NotFound(f"There is no subscription {subscription_id}")
    return found


def _changeable(call: Call, subscription_id: str, rule: str) -> Subscription:
    """Return a subscription that the caller may see and change; raises NotFound, Forbidden."""
    found = _visible(call, subscription_id)
    call.require(rule, found.project_id)
    return found


def _check_url(call: Call, url: str) -> None:
    try:
        check_url(url, call.runtime.settings.webhooks)
    except InvalidInput as error:
        raise validation.placed(InvalidInput(f"url: {error.message}"), ("url",)) from None


def _filters(data: Mapping[str, Any]) -> dict[str, Any]:
    named = {name: data[name] for name in _FILTERS if name in data}
    if "event_types" in named:
        named["event_types"] = tuple(named["event_types"])
    return named


def _body(call: Call, found: Subscription) -> dict[str, Any]:
    [body] = _bodies(call, [found])
    return body


def _bodies(call: Call, found: Sequence[Subscription]) -> list[dict[str, Any]]:
    counts = subscriptions.dead_letter_counts(call.runtime, found)
    return [
        {**schemas.SUBSCRIPTION.dump(one), "dead_letters": counts.get(one.id, 0)} for one in found
    ]


def _beyond(page: Page, found: Sequence[Subscription]) -> str | None:
    if len(found) <= page.limit:
        return None
    last = found[page.limit - 1]
    return paging.link(page, last.created_at, last.id)
