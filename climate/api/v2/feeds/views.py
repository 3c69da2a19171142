"""The routes of calendar feeds, and of the calendar file of one lease.

``/v2/feeds`` manages feeds. Calendar programs read a feed at ``/feeds/<secret>.ics``.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from flask import request

from climate.api.call import Answer, Api, Call
from climate.api.v2.feeds import schemas
from climate.api.v2.http import paging, validation
from climate.api.v2.leases.views import visible
from climate.api.v2.resources.views import number
from climate.core.errors import Forbidden, NotFound
from climate.core.notifications.feed import Entry, Feed, FeedScope
from climate.core.page import FEED_SORTS
from climate.manager.notifications import feeds
from climate.manager.notifications.feeds import Target
from climate.manager.resources import registry
from climate.notifications.calendar_file import MEDIA_TYPE, render

_HEADERS = {
    "Content-Type": MEDIA_TYPE,
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "Content-Disposition": 'attachment; filename="climate.ics"',
    "Cache-Control": "private, max-age=60",
    "Referrer-Policy": "no-referrer",
}
_LONGEST_NAME = 80


def index(call: Call) -> Answer:
    """List calendar feeds of your project, or of all projects."""
    query = validation.query(schemas.FEED_QUERY)
    if query["all_projects"]:
        call.require("feeds:get_all")
    page = paging.page({**query, "sort": "created"})
    project_id = None if query["all_projects"] else call.caller.project_id
    part = feeds.find_all(call.runtime, project_id, page)
    following = paging.following(page, part, FEED_SORTS)
    return {"feeds": [_body(feed) for feed in part.items], "next": following}, 200


def create(call: Call) -> Answer:
    """Create a calendar feed; its secret address is only in this answer."""
    data = validation.load(schemas.FEED_REQUEST, validation.body(call))
    sees_all = call.may("leases:get_all")
    name = _target_name(call, data["scope"], data["id"], sees_all=sees_all)
    target = Target(
        scope=data["scope"],
        id=data["id"],
        name=data.get("name") or name[:_LONGEST_NAME],
        project_id=call.caller.project_id,
        user_id=call.caller.user_id,
        sees_all=sees_all,
    )
    feed, secret = feeds.create(call.runtime, target)
    return {**_body(feed), "url": f"{request.root_url}feeds/{secret}.ics"}, 201


def delete(call: Call, feed_id: str) -> Answer:
    """Revoke a calendar feed that you created. Its URL stops working.

    The policy ``feeds:delete_all`` also allows you to revoke feeds of other users.
    """
    validation.no_query()
    feed = call.visible(feeds.get, feed_id, "feeds:get", f"There is no feed {feed_id}")
    call.require("feeds:delete", feed.project_id)
    is_maker = feed.user_id == call.caller.user_id
    if not is_maker and not call.may("feeds:delete_all", feed.project_id):
        raise Forbidden(
            f"Another user created feed {feed.id}: only that user, or a caller with the policy"
            " feeds:delete_all, may revoke it"
        )
    feeds.delete(call.runtime, feed.id)
    return None, 204


def read(api: Api, secret: str) -> Answer:
    """Return a calendar feed (iCalendar); the secret in the address is the only credential."""
    feed, entries = feeds.read(api.runtime, secret)
    return _file(api, feed.name, entries)


def of_lease(call: Call, lease_id: str) -> Answer:
    """Return a lease as a calendar file (iCalendar)."""
    lease = visible(call, lease_id)
    return _file(call.api, lease.name, feeds.lease_entries(call.runtime, lease.id))


def _file(api: Api, name: str, entries: Sequence[Entry]) -> Answer:
    """Return the entries as an iCalendar file, or the status 304 if the client already has it.

    ``name`` is the name of the calendar in the file.
    """
    console_url = f"{request.root_url}console" if api.conf.console.enabled else None
    # The tag is computed before the entries are rendered, because rendering takes most of the time.
    content = repr((name, console_url, entries)).encode("utf-8", "surrogatepass")
    tag = hashlib.sha256(content).hexdigest()[:32]
    headers = {**_HEADERS, "ETag": f'"{tag}"'}
    if request.if_none_match.contains(tag):
        return None, 304, headers
    return render(name, entries, console_url), 200, headers


def _target_name(call: Call, scope: FeedScope, id_: str, *, sees_all: bool) -> str:
    """Return the name of the lease, project or resource with the id ``id_``, for a new feed.

    ``scope`` is the kind of object. ``sees_all`` states whether the caller may see the leases of
    all projects. Raises NotFound if there is no such object, or if the caller may not see it.
    Raises Forbidden if ``scope`` is RESOURCE and the caller may not read resources.
    """
    if scope is FeedScope.LEASE:
        return visible(call, id_).name
    if scope is FeedScope.PROJECT:
        if not (sees_all or id_ == call.caller.project_id):
            raise NotFound(f"There is no project {id_}")
        return id_
    call.require("resources:get")
    found = number(id_)
    if str(found) != id_:
        raise NotFound(f"There is no resource {id_}")
    private, project_id = call.may("resources:get_private"), call.caller.project_id
    resource = registry.get_resource(call.runtime, found, private=private, project_id=project_id)
    return resource.external_id


def _body(feed: Feed) -> dict[str, Any]:
    body: dict[str, Any] = schemas.FEED.dump(feed)
    return body
