"""Invariants of the rows and of the simulated cloud between transactions."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from climate.core.lease.schedule import ACTIONS, END, RELEASE, START
from tests.support.rows import Rows

Row = Mapping[str, Any]
Pools = Mapping[str, set[str]]

OPEN = {"UNDONE", "IN_PROGRESS"}
# The statuses that a lease's start event and its reservations can have, by that of the lease.
STARTS = {
    "PENDING": OPEN,
    "STARTING": OPEN,
    "ACTIVE": {"DONE"},
    "TERMINATING": {"UNDONE", "DONE", "ERROR"},
    "ERROR": {"UNDONE", "IN_PROGRESS", "DONE", "ERROR"},
    "DELETING": {"IN_PROGRESS", "UNDONE", "DONE", "ERROR"},
    "TERMINATED": {"DONE", "ERROR"},
}
RESERVATIONS = {
    "PENDING": {"pending"},
    "STARTING": {"pending"},
    "ACTIVE": {"active"},
    "TERMINATING": {"pending", "active", "error"},
    "ERROR": {"pending", "active", "error"},
    "DELETING": {"pending", "active", "error"},
    "TERMINATED": {"deleted"},
}
ALWAYS_STARTED = {"PENDING", "STARTING", "ACTIVE"}


class View:
    """Rows by the lease or reservation that they belong to."""

    def __init__(self, rows: Rows) -> None:
        self.leases = {row["id"]: row for row in rows["leases"]}
        self.reservations = {row["id"]: row for row in rows["reservations"]}
        self.hosts = {row["id"]: row["external_id"] for row in rows["resources"]}
        self.allocations = rows["allocations"]
        self.events: dict[str, list[Row]] = defaultdict(list)
        for row in rows["events"]:
            self.events[row["lease_id"]].append(row)
        self.held: dict[str, list[Row]] = defaultdict(list)
        for row in rows["allocations"]:
            self.held[row["reservation_id"]].append(row)

    def reservations_of(self, lease: Row) -> list[Row]:
        return [row for row in self.reservations.values() if row["lease_id"] == lease["id"]]

    def hosts_of(self, reservation: Row) -> set[str]:
        """The names of the hosts that a reservation has booked."""
        return {self.hosts[row["resource_id"]] for row in self.held[reservation["id"]]}

    def of_kind(self, lease: Row, kind: str) -> list[Row]:
        return [event for event in self.events[lease["id"]] if event["kind"] == kind]


def check(rows: Rows, pools: Pools, now: datetime, cleaning: timedelta) -> None:
    view = View(rows)
    check_nothing_is_booked_twice(view)
    check_pools_belong_to_reservations(view, pools)
    for lease in view.leases.values():
        if lease["status"] == "CREATING":
            check_offer(view, lease)
            continue
        check_events(view, lease)
        check_reservations(view, lease, now, cleaning)
        if lease["status"] == "ACTIVE":
            check_active_hosts_are_in_their_pool(view, lease, pools)


def check_nothing_is_booked_twice(view: View) -> None:
    by_host = defaultdict(list)
    for row in view.allocations:
        assert row["start_at"] < row["busy_until"], row
        by_host[row["resource_id"]].append(row)
    for bookings in by_host.values():
        bookings.sort(key=lambda row: row["start_at"])
        for earlier, later in itertools.pairwise(bookings):
            assert earlier["busy_until"] <= later["start_at"], (earlier, later)


def check_pools_belong_to_reservations(view: View, pools: Pools) -> None:
    """A host is in one pool at most, and only in that of a reservation that has booked it."""
    in_pools = Counter(host for hosts in pools.values() for host in hosts)
    assert all(count == 1 for count in in_pools.values()), pools
    for pool, hosts in pools.items():
        assert pool in view.reservations, f"the pool of a lease that is gone holds {hosts}"
        reservation = view.reservations[pool]
        assert hosts <= view.hosts_of(reservation), (reservation, hosts)
        lease = view.leases[reservation["lease_id"]]
        assert lease["status"] not in {"PENDING", "TERMINATED"}, (lease, hosts)


def check_offer(view: View, lease: Row) -> None:
    """An offer has its release, and all its hosts until the release begins."""
    [event] = view.events[lease["id"]]
    seen = (lease, event)
    assert (event["kind"], event["due_at"]) == (RELEASE, lease["offered_until"]), seen
    for reservation in view.reservations_of(lease):
        assert reservation["status"] == "pending", seen
        held, params = len(view.held[reservation["id"]]), reservation["params"]
        assert params["min"] <= held <= params["max"] or (event["attempt"] and not held), seen


def check_events(view: View, lease: Row) -> None:
    """An unfinished lease has one open end, and a start event that matches its status."""
    ends, starts = view.of_kind(lease, END), view.of_kind(lease, START)
    seen = (lease, view.events[lease["id"]])
    assert len(ends) == 1, seen
    assert len(starts) == 1 if lease["status"] in ALWAYS_STARTED else len(starts) <= 1, seen
    assert (ends[0]["status"] in OPEN) == (lease["status"] != "TERMINATED"), seen
    assert {start["status"] for start in starts} <= STARTS[lease["status"]], seen
    if lease["status"] != "DELETING":
        assert ends[0]["due_at"] == lease["end_at"], seen
        assert {start["due_at"] for start in starts} <= {lease["start_at"]}, seen
    if lease["status"] == "TERMINATED":
        acts = [event for event in view.events[lease["id"]] if event["kind"] in ACTIONS]
        assert not any(event["status"] in OPEN for event in acts), seen
    for event in view.events[lease["id"]]:
        claimed = event["owner"] is not None and event["claimed_until"] is not None
        assert claimed == (event["status"] == "IN_PROGRESS"), event


def check_reservations(view: View, lease: Row, now: datetime, cleaning: timedelta) -> None:
    """An unfinished lease holds the hosts it requested, for its window and the cleaning time."""
    for reservation in view.reservations_of(lease):
        held = view.held[reservation["id"]]
        seen = (now, lease, reservation, held)
        assert reservation["status"] in RESERVATIONS[lease["status"]], seen
        if lease["status"] == "DELETING":
            continue
        for row in held:
            assert row["start_at"] >= lease["start_at"], seen
            assert row["busy_until"] == lease["end_at"] + cleaning, seen
        if lease["status"] != "TERMINATED" and lease["end_at"] > now:
            params = reservation["params"]
            assert params["min"] <= len(held) <= params["max"], seen


def check_active_hosts_are_in_their_pool(view: View, lease: Row, pools: Pools) -> None:
    """All hosts are in the pool, unless an update that adds hosts is open or failed for good."""
    growing = any(event["status"] in OPEN for event in view.of_kind(lease, "update_lease"))
    for reservation in view.reservations_of(lease):
        missing = view.hosts_of(reservation) - pools.get(reservation["id"], set())
        ending = any(event["status"] != "UNDONE" for event in view.of_kind(lease, END))
        assert not missing or growing or ending or lease["degraded"], (lease, missing)
