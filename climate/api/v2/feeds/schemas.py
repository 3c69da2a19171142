"""Schemas of calendar feeds: secret URLs from which calendar programs read leases."""

from marshmallow import Schema, fields, validate

from climate.api.v2.http.fields import Moment, Strict, flag
from climate.api.v2.http.schemas import PageQuery, described, page_of
from climate.core.notifications.feed import FeedScope


class FeedRequest(Strict):
    """The body of a request to create a calendar feed of a lease, a project or a resource."""

    scope = fields.Enum(FeedScope, by_value=True, required=True)
    id = fields.String(
        required=True,
        validate=validate.Length(1, 255),
        metadata=described("Id of the lease, project or resource."),
    )
    name = fields.String(validate=validate.Length(1, 80))


class Feed(Schema):
    """A calendar feed, without its secret URL.

    Only the answer to the request that creates a feed contains the URL: see ``CreatedFeed``.
    """

    id = fields.String()
    scope = fields.Enum(FeedScope, by_value=True)
    target_id = fields.String()
    name = fields.String()
    project_id = fields.String()
    user_id = fields.String()
    created_at = Moment()
    last_read_at = Moment(allow_none=True, metadata=described("Exact to an hour."))


class CreatedFeed(Feed):
    """A calendar feed, with its secret URL, in the answer to the request that created the feed."""

    url = fields.String(metadata=described("Everyone who has this address can read the feed."))


FeedPage = page_of("feeds", Feed)


class FeedQuery(PageQuery):
    """The query parameters of the list of calendar feeds.

    They select a page, and whether to list the feeds of all projects.
    """

    all_projects = flag(
        load_default=False,
        metadata=described("Feeds of all projects. Requires the policy climate:feeds:get_all."),
    )


FEED, FEED_REQUEST, FEED_QUERY = Feed(), FeedRequest(), FeedQuery()
