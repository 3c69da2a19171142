"""What is left of the lives of leases, and whether all was as it must be.

Pure: what was found is given, so that ``test_evidence`` can forge it.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from climate.core.lease.schedule import BEFORE_END, BEFORE_START, END, START
from tests.support import invariants
from tests.support.rows import Rows

#: What is told of a lease that lives undisturbed.
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
    """Leases that were acknowledged, all rows, all effects in order, all messages in order.

    A message is its payload with ``event_type``. ``done`` says when some effects were had first, by
    "EFFECT POOL", whatever managers took for the present.
    """

    acknowledged: Sequence[str]
    rows: Rows
    effects: Sequence[Effect]
    messages: Sequence[Message]
    done: Mapping[str, datetime]
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What happened more than once, as it may, or not, as its time was over; for the table."""

    tried_again: int
    told_again: int
    too_late: int


def check(found: Evidence) -> Outcome:
    """Check all; raises AssertionError with what is wrong."""
    check_leases(found)
    check_effects(found)
    check_nothing_is_early(found)
    check_nothing_is_left(found)
    check_numbers(found)
    check_messages(found)
    events = found.rows["events"]
    ids = Counter(one["message_id"] for one in found.messages)
    told = {one["message_id"] for one in found.messages if one["event_type"] in LIFE}
    return Outcome(
        tried_again=sum(event["attempt"] - 1 for event in events if event["attempt"] > 1),
        told_again=sum(count - 1 for count in ids.values()),
        too_late=len(LIFE) * len(found.acknowledged) - len(told),
    )


def check_leases(found: Evidence) -> None:
    """Those that were acknowledged are there, no others are, and their life is over."""
    leases = {row["id"]: row for row in found.rows["leases"]}
    assert leases.keys() == set(found.acknowledged)
    assert {row["status"] for row in leases.values()} == {"TERMINATED"}, _statuses(leases)
    for event in found.rows["events"]:
        assert event["status"] == "DONE", event
        assert event["owner"] is event["claimed_until"] is None, event
    invariants.check(found.rows, {}, found.now, timedelta())


def check_effects(found: Evidence) -> None:
    """Each effect was had once, in order, and for no lease but ours."""
    pools = {row["id"]: row["lease_id"] for row in found.rows["reservations"]}
    done: dict[str, list[str]] = defaultdict(list)
    holder: dict[str, str] = {}
    for effect in found.effects:
        pool = effect.get("pool") or holder.get(effect["host"])
        assert pool in pools, f"an effect for nobody: {effect}"
        done[pool].append(effect["effect"])
        if effect["effect"] == "add_host":
            assert effect["host"] not in holder, f"taken by {holder}: {effect}"
            holder[effect["host"]] = pool
        elif effect["effect"] == "remove_host":
            del holder[effect["host"]]
    leases = {row["id"]: row for row in found.rows["leases"]}
    for pool, lease_id in pools.items():
        excused = BEFORE_END in _excused(found, leases[lease_id])
        wanted = [one for one in EFFECTS if one != "snapshot" or "snapshot" in done[pool]]
        assert done[pool] == wanted, (lease_id, done[pool])
        assert "snapshot" in done[pool] or excused, f"no image was kept of lease {lease_id}"


def check_nothing_is_early(found: Evidence) -> None:
    """No lease had its hosts before its start, or lost them before its end."""
    leases = {row["id"]: row for row in found.rows["leases"]}
    for row in found.rows["reservations"]:
        lease = leases[row["lease_id"]]
        for effect, edge in (("ensure_pool", "start_at"), ("remove_host", "end_at")):
            early = lease[edge] - found.done[f"{effect} {row['id']}"]
            assert early < _PRECISION, f"{effect} of lease {lease['id']} is {early} early"


def check_nothing_is_left(found: Evidence) -> None:
    """All pools are gone, and all hosts are free and without servers."""
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
    """Whatever was written arrived, unchanged; of each lease in its order, and no more."""
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
        check_told(found, lease, of[lease["id"]])


def check_told(found: Evidence, lease: Mapping[str, Any], told: Sequence[Message]) -> None:
    """One lease: its life, in order; what could not be had in time may be missing."""
    for one, other in itertools.pairwise(told):
        assert one["seq"] < other["seq"], f"out of order: {one} before {other}"
    types = [one["event_type"] for one in told]
    excused = {f"lease.event.{kind}" for kind in _excused(found, lease)}
    known = [one for one in types if one in LIFE]
    assert known == [one for one in LIFE if one in known], types
    assert set(LIFE) - set(known) <= excused, (set(LIFE) - set(known), types)


def _excused(found: Evidence, lease: Mapping[str, Any]) -> set[str]:
    """Return the kinds of events whose time was over when somebody could see to them.

    A heads-up has nothing to say after the start; what fails before the end gives way to the end.
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
