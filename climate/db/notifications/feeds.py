"""Calendar feeds: URLs that show leases in a calendar program.

A feed shows the leases of a project, the leases on a resource, or one lease. It also shows leases
that were deleted lately; records of them are stored here.

Each feed has a number ``place`` that is unique in its project. The place of a new feed is less than
the limit of feeds per project. So the unique key enforces this limit.
"""

from collections.abc import Collection
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.errors import NotFound
from climate.core.lease.model import Lease
from climate.core.notifications.feed import MOST_ENTRIES, Entry, EntryStatus, Feed, FeedScope, uid
from climate.core.page import Page, Part
from climate.core.window import Window
from climate.db.resources.pages import cut
from climate.db.tables.bulk import insert as insert_rows
from climate.db.tables.bulk import record, values
from climate.db.tables.leases import AllocationRow, LeaseRow, ResourceRow
from climate.db.tables.notifications import FeedRemovalRow, FeedRow


def insert(session: Session, feed: Feed, secret_hash: str, most: int) -> bool:
    """Store a new calendar feed; return False if its project already has ``most`` feeds.

    ``secret_hash`` is the hash of the secret in the URL of the feed.
    """
    of_project = FeedRow.project_id == feed.project_id
    free = set(range(most)).difference(session.scalars(sa.select(FeedRow.place).where(of_project)))
    if not free:
        return False
    row = {
        **values(feed, "id project_id user_id target_id name sees_all created_at"),
        "scope": feed.scope.value,
        "place": min(free),
        "secret_hash": secret_hash,
    }
    session.add(FeedRow(**row))
    session.flush()  # if another request took the place, the transaction runs again
    return True


def get(session: Session, feed_id: str) -> Feed:
    """Return a calendar feed; raises NotFound."""
    row = session.get(FeedRow, feed_id)
    if row is None:
        raise NotFound(f"There is no feed {feed_id}")
    return _feed(row)


def find_by_secret(session: Session, secret_hash: str) -> Feed | None:
    """Return the calendar feed whose secret has this hash; None if there is none."""
    row = session.scalar(sa.select(FeedRow).where(FeedRow.secret_hash == secret_hash))
    return _feed(row) if row else None


def find_all(session: Session, project_id: str | None, page: Page) -> Part[Feed]:
    """Return the calendar feeds of a project (None: of all projects), sorted by creation time.

    ``page`` selects a part of the list.
    """
    query = sa.select(FeedRow)
    if project_id is not None:
        query = query.where(FeedRow.project_id == project_id)
    rows = session.scalars(cut(query, FeedRow.created_at, FeedRow.id, page)).all()
    return Part(items=[_feed(row) for row in rows[: page.limit]], more=len(rows) > page.limit)


def note_read(session: Session, feed_id: str, now: datetime, since: datetime) -> None:
    """Store ``now`` as the time at which a calendar program last read a feed.

    ``since`` is a time before ``now``. If a read after ``since`` is stored already, nothing is
    written, so that frequent reads rarely change the row.
    """
    is_old = sa.or_(FeedRow.last_read_at.is_(None), FeedRow.last_read_at <= since)
    change = sa.update(FeedRow).where(FeedRow.id == feed_id, is_old)
    session.execute(change.values(last_read_at=now))


def delete(session: Session, feed_id: str) -> None:
    """Delete a calendar feed, and the records of deleted leases that it shows."""
    session.execute(sa.delete(FeedRemovalRow).where(FeedRemovalRow.feed_id == feed_id))
    session.execute(sa.delete(FeedRow).where(FeedRow.id == feed_id))


def note_removal(
    session: Session, lease: Lease, status: EntryStatus, window: Window, now: datetime
) -> None:
    """Store, for each calendar feed that shows a lease, that the lease is deleted at ``now``.

    The feeds then show the deleted lease with this ``status`` and ``window``. The caller must
    delete the lease.
    """
    ids = [reservation.id for reservation in lease.reservations]
    held = sa.select(sa.cast(AllocationRow.resource_id, FeedRow.target_id.type)).where(
        AllocationRow.reservation_id.in_(ids)
    )
    shows = sa.or_(
        sa.and_(FeedRow.scope == FeedScope.LEASE, FeedRow.target_id == lease.id),
        sa.and_(FeedRow.scope == FeedScope.PROJECT, FeedRow.target_id == lease.project_id),
        sa.and_(FeedRow.scope == FeedScope.RESOURCE, FeedRow.target_id.in_(held)),
    )
    may_see = sa.or_(FeedRow.project_id == lease.project_id, FeedRow.sees_all.is_(True))
    feeds = session.scalars(sa.select(FeedRow.id).where(shows, may_see)).all()
    row = {
        **values(lease, "name created_at"),
        "lease_id": lease.id,
        "status": status.value,
        "start_at": window.start,
        "end_at": window.end,
        "sequence": lease.version + 1,
        "removed_at": now,
    }
    insert_rows(session, (FeedRemovalRow, [{"feed_id": id_, **row} for id_ in feeds]))


def removals(session: Session, feed: Feed, since: datetime) -> list[Entry]:
    """Return the entries of a feed for the leases that were deleted after ``since``."""
    query = sa.select(FeedRemovalRow).where(
        FeedRemovalRow.feed_id == feed.id, FeedRemovalRow.removed_at > since
    )
    latest = query.order_by(FeedRemovalRow.removed_at.desc(), FeedRemovalRow.lease_id)
    return [
        Entry(
            uid=uid(row.lease_id, feed.scope, feed.target_id),
            summary=row.name,
            window=Window(row.start_at, row.end_at),
            status=EntryStatus(row.status),
            sequence=row.sequence,
            created_at=row.created_at,
            changed_at=row.removed_at,
        )
        for row in session.scalars(latest.limit(MOST_ENTRIES))
    ]


def forget_removals(session: Session, before: datetime) -> None:
    """Delete the feeds' records of leases that were deleted before ``before``."""
    session.execute(sa.delete(FeedRemovalRow).where(FeedRemovalRow.removed_at < before))


def without_target(session: Session, limit: int) -> list[str]:
    """Return the ids of up to ``limit`` feeds that can never show an entry again.

    The lease or resource of such a feed no longer exists, and the feed shows no deleted lease.
    """
    lease = sa.exists().where(LeaseRow.id == FeedRow.target_id)
    id_ = sa.cast(ResourceRow.id, FeedRow.target_id.type)
    resource = sa.exists().where(id_ == FeedRow.target_id)
    removal = sa.exists().where(FeedRemovalRow.feed_id == FeedRow.id)
    is_gone = sa.or_(
        sa.and_(FeedRow.scope == FeedScope.LEASE, ~lease),
        sa.and_(FeedRow.scope == FeedScope.RESOURCE, ~resource),
    )
    return list(session.scalars(sa.select(FeedRow.id).where(is_gone, ~removal).limit(limit)))


def delete_all(session: Session, ids: Collection[str]) -> None:
    """Delete the feeds with these ids, which must not have records of deleted leases."""
    session.execute(sa.delete(FeedRow).where(FeedRow.id.in_(ids)))


def _feed(row: FeedRow) -> Feed:
    return record(Feed, row, scope=FeedScope(row.scope))
