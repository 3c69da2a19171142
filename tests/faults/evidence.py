"""What leases leave behind, and the checks of it."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from climate.core.lease.schedule import BEFORE_END, BEFORE_START, END, START
from tests.support import invariants
from tests.support.rows import Rows

#: The notifications of an undisturbed lease.
LIFE = ["lease.create"] + [f"lease.event.{kind}" for kind in (BEFORE_START, START, BEFORE_END, END)]
#: What is done to the cloud for one.
EFFECTS = ["ensure_pool", "add_host", "snapshot", "delete_servers", "remove_host", "delete_pool"]
# What may be missing, and until when that has a meaning.
_ONLY_IN_TIME = {BEFORE_START: "start_at", BEFORE_END: "end_at"}

# What is called early: clocks of one machine are asked one after the other.
_PRECISION = timedelta(milliseconds=100)

Effect = Mapping[str, Any]
Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Acknowledged leases, all rows, all effects and all messages, in order.

    A message is its payload with ``event_type``. ``done`` has the first time of some effects by
    "EFFECT POOL", as the managers' clocks showed it.
    """

    acknowledged: Sequence[str]
    rows: Rows
    effects: Sequence[Effect]
    messages: Sequence[Message]
    done: Mapping[str, datetime]
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was repeated, or omitted because it was too late; for the table."""

    tried_again: int
    told_again: int
    too_late: int


def check(found: Evidence) -> Outcome:
    """Run all checks; raises AssertionError with the reason."""
    check_leases(found)
    check_effects(found)
    check_nothing_is_early(found)
    check_nothing_is_left(found)
    check_numbers(found)
    check_messages(found)
    events = found.rows["events"]
    ids = Counter(item["message_id"] for item in found.messages)
    messages = {item["message_id"] for item in found.messages if item["event_type"] in LIFE}
    return Outcome(
        tried_again=sum(event["attempt"] - 1 for event in events if event["attempt"] > 1),
        told_again=sum(count - 1 for count in ids.values()),
        too_late=len(LIFE) * len(found.acknowledged) - len(messages),
    )


def check_leases(found: Evidence) -> None:
    """All acknowledged leases exist, no others, and all are over."""
    leases = {row["id"]: row for row in found.rows["leases"]}
    assert leases.keys() == set(found.acknowledged)
    assert {row["status"] for row in leases.values()} == {"TERMINATED"}, _statuses(leases)
    for event in found.rows["events"]:
        assert event["status"] == "DONE", event
        assert event["owner"] is event["claimed_until"] is None, event
    invariants.check(found.rows, {}, found.now, timedelta())


def check_effects(found: Evidence) -> None:
    """Each effect occurred once, in order, and only for our leases."""
    pools = {row["id"]: row["lease_id"] for row in found.rows["reservations"]}
    done: dict[str, list[str]] = defaultdict(list)
    holder: dict[str, str] = {}
    for effect in found.effects:
        pool: str = effect.get("pool") or holder.get(effect["host"], "")
        assert pool in pools, f"an effect without a lease: {effect}"
        done[pool].append(effect["effect"])
        if effect["effect"] == "add_host":
            assert effect["host"] not in holder, f"taken by {holder}: {effect}"
            holder[effect["host"]] = pool
        elif effect["effect"] == "remove_host":
            del holder[effect["host"]]
    leases = {row["id"]: row for row in found.rows["leases"]}
    for pool, lease_id in pools.items():
        excused = BEFORE_END in _excused_kinds(found, leases[lease_id])
        wanted = [item for item in EFFECTS if item != "snapshot" or "snapshot" in done[pool]]
        assert done[pool] == wanted, (lease_id, done[pool])
        assert "snapshot" in done[pool] or excused, f"no image was kept of lease {lease_id}"


def check_nothing_is_early(found: Evidence) -> None:
    """No lease got its hosts before its start, or lost them before its end."""
    leases = {row["id"]: row for row in found.rows["leases"]}
    for row in found.rows["reservations"]:
        lease = leases[row["lease_id"]]
        for effect, edge in (("ensure_pool", "start_at"), ("remove_host", "end_at")):
            early = lease[edge] - found.done[f"{effect} {row['id']}"]
            assert early < _PRECISION, f"{effect} of lease {lease['id']} is {early} early"


def check_nothing_is_left(found: Evidence) -> None:
    """All pools are deleted, and all hosts are free and without servers."""
    pools, holder, cleared = set[str](), dict[str, str](), set[str]()
    for effect in found.effects:
        match effect["effect"]:
            case "ensure_pool":
                pools.add(effect["pool"])
            case "delete_pool":
                pools.discard(effect["pool"])
            case "add_host":
                holder[effect["host"]] = effect["pool"]
            case "remove_host":
                holder.pop(effect["host"], None)
            case "delete_servers":
                cleared.add(effect["host"])
    assert not pools, f"{len(pools)} pools are left"
    assert not holder, f"hosts are still in pools: {holder}"
    assert len(cleared) == len(found.acknowledged)


def check_numbers(found: Evidence) -> None:
    """Public numbers have no gaps, and every notification was published."""
    rows = found.rows["outbox"]
    assert sorted(row["seq"] for row in rows) == list(range(1, len(rows) + 1))
    relay = found.rows["relay"][0]
    for what in ("last_seq", "published_seq"):
        assert relay[what] == len(rows), f"the relay's {what} is {relay[what]} of {len(rows)}"


def check_messages(found: Evidence) -> None:
    """Each notification arrived unchanged, in the order of its lease, and no others."""
    first: dict[str, Message] = {}
    for message in found.messages:
        first.setdefault(message["message_id"], message)
    written = {row["message_id"]: row for row in found.rows["outbox"]}
    assert first.keys() == written.keys(), f"{len(first)} of {len(written)} arrived"
    for message in found.messages:
        assert message["seq"] == written[message["message_id"]]["seq"]
    of: dict[str, list[Message]] = defaultdict(list)
    for message in first.values():
        of[message["lease_id"]].append(message)
    for lease in found.rows["leases"]:
        check_notifications(found, lease, of[lease["id"]])


def check_notifications(found: Evidence, lease: Mapping[str, Any], sent: Sequence[Message]) -> None:
    """The notifications of one lease are in order; late events may be missing."""
    for first, second in itertools.pairwise(sent):
        assert first["seq"] < second["seq"], f"out of order: {first} before {second}"
    types = [item["event_type"] for item in sent]
    excused = {f"lease.event.{kind}" for kind in _excused_kinds(found, lease)}
    known = [type_ for type_ in types if type_ in LIFE]
    assert known == [item for item in LIFE if item in known], types
    assert set(LIFE) - set(known) <= excused, (set(LIFE) - set(known), types)


def _excused_kinds(found: Evidence, lease: Mapping[str, Any]) -> set[str]:
    """Return the kinds of events that may be missing because they were too late.

    A reminder is useless after the start; a failed before-end gives way to the end.
    """
    events = [row for row in found.rows["events"] if row["lease_id"] == lease["id"]]
    closed = {event["kind"]: event["updated_at"] for event in events}
    return {
        kind
        for kind, edge in _ONLY_IN_TIME.items()
        if closed.get(kind) is None or closed[kind] >= lease[edge]
    }


def _statuses(leases: Mapping[str, Mapping[str, Any]]) -> Counter[str]:
    return Counter(row["status"] for row in leases.values())
