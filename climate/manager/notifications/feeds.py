"""Use cases of calendar feeds: create, list, read, revoke, and remove feeds that are obsolete.

A calendar feed is an address with a secret. From this address, a calendar program reads the leases
of a project, the bookings of a resource, or a single lease. A feed is obsolete if its lease or
resource no longer exists.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from climate.core.errors import LimitExceeded, NotFound
from climate.core.notifications.feed import (
    REMOVED_SHOWN,
    Entry,
    Feed,
    FeedScope,
    entry,
    nearest,
    new_secret,
    secret_hash,
    taken,
    uid,
)
from climate.db.engine import ids
from climate.db.notifications import feed_leases, feeds
from climate.manager.process.runtime import Runtime, Store, reading

LOG = logging.getLogger(__name__)

find_all = reading(feeds.find_all)
get = reading(feeds.get)

# The same text for every secret that belongs to no feed.
_ABSENT = "There is no such feed: its address is wrong or was revoked"
# A read of a feed writes at most once in this time.
_READS_NOTED_EVERY = timedelta(hours=1)
_STALE_PER_RUN = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a new feed shows (a lease, project or resource), its name, and the user who creates it.

    ``id`` is the id of that lease, project or resource. ``project_id`` and ``user_id`` are those of
    the creator. If ``sees_all`` is set, the feed may show the leases of all projects.
    """

    scope: FeedScope
    id: str
    name: str
    project_id: str
    user_id: str
    sees_all: bool


def create(runtime: Runtime, target: Target) -> tuple[Feed, str]:
    """Create a calendar feed; return the feed, and the secret of its address.

    climate stores only a hash of the secret, so it cannot show the secret later.

    Raises LimitExceeded if the project already has the maximum number of feeds.
    """
    most, now, secret = runtime.settings.feeds_per_project, runtime.clock.now(), new_secret()
    feed = Feed(
        id=ids.new_id(),
        project_id=target.project_id,
        user_id=target.user_id,
        scope=target.scope,
        target_id=target.id,
        name=target.name,
        sees_all=target.sees_all,
        created_at=now,
    )

    def work(session: Session) -> None:
        if not feeds.insert(session, feed, secret_hash(secret) or "", most):
            raise LimitExceeded(
                f"Project {feed.project_id} already has {most} feeds, the maximum: remove one first"
            )

    runtime.database.write(work)
    return feed, secret


def delete(runtime: Runtime, feed_id: str) -> None:
    """Revoke a calendar feed: its address does not work any more."""
    runtime.database.write(partial(feeds.delete, feed_id=feed_id))


def read(runtime: Runtime, secret: str) -> tuple[Feed, list[Entry]]:
    """Return the calendar feed whose address has this secret, and the feed's entries.

    Raises NotFound if the secret belongs to no feed. At most once an hour, also store when the feed
    was read.
    """
    now, hashed = runtime.clock.now(), secret_hash(secret)
    with runtime.database.read() as session:
        feed = feeds.find_by_secret(session, hashed) if hashed else None
        if feed is None:
            raise NotFound(_ABSENT)
        entries = _entries(session, feed, now)
    since = now - _READS_NOTED_EVERY
    if feed.last_read_at is None or feed.last_read_at <= since:
        _note_read(runtime, feed, now, since)
    return feed, entries


def lease_entries(runtime: Runtime, lease_id: str) -> list[Entry]:
    """Return the calendar entry of a lease as a list; an empty list if there is no such lease.

    The caller must check that the requester may see the lease.
    """
    with runtime.database.read() as session:
        leases = feed_leases.of_lease(session, lease_id, None)
    return [entry(lease, uid(lease.id, FeedScope.LEASE, lease.id)) for lease in leases]


def remove_stale(store: Store) -> None:
    """Remove calendar feeds that can never show an entry again.

    A feed shows a deleted lease as cancelled as long as climate has a record of the deletion. This
    function first removes old records of deletions.
    """
    before = store.clock.now() - REMOVED_SHOWN
    store.database.write(partial(feeds.forget_removals, before=before))
    with store.database.read() as session:
        stale = feeds.without_target(session, _STALE_PER_RUN)
    if stale:
        store.database.write(partial(feeds.delete_all, ids=stale))


def _entries(session: Session, feed: Feed, now: datetime) -> list[Entry]:
    """Return the entries of a feed: the leases that it may show, and recently deleted leases.

    The feed of a resource also contains anonymous entries for the bookings of other projects.
    """
    project_id = None if feed.sees_all else feed.project_id
    others: list[Entry] = []
    if feed.scope is FeedScope.LEASE:
        leases = feed_leases.of_lease(session, feed.target_id, project_id)
    elif feed.scope is FeedScope.PROJECT:
        leases = feed_leases.of_project(session, feed.target_id, now)
    else:
        number = int(feed.target_id)
        leases = feed_leases.of_resource(session, number, project_id, now)
        if project_id is not None:
            others = taken(feed, feed_leases.taken(session, number, project_id, now))
    own = [entry(lease, uid(lease.id, feed.scope, feed.target_id)) for lease in leases]
    deleted = feeds.removals(session, feed, now - REMOVED_SHOWN)
    return nearest([*own, *others, *deleted], now)


def _note_read(runtime: Runtime, feed: Feed, now: datetime, since: datetime) -> None:
    """Store that the feed was read at ``now``, unless a read after ``since`` is stored already.

    If the database raises an error, only log it, so that the read itself succeeds.
    """
    work = partial(feeds.note_read, feed_id=feed.id, now=now, since=since)
    try:
        runtime.database.write(work)
    except SQLAlchemyError as error:
        LOG.warning("cannot store when feed %s was read: %s", feed.id, error)
