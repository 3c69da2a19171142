"""Each check of the evidence fails on evidence that is forged in one place."""

import copy
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from climate.core.lease.schedule import BEFORE_END, BEFORE_START, END, START
from tests.faults.evidence import EFFECTS, LIFE, Evidence, check

DAWN = datetime(2030, 1, 15, 12, tzinfo=UTC)
DUE = {BEFORE_START: 0, START: 10, BEFORE_END: 20, END: 30}
EVENTS = {kind: number for number, kind in enumerate(DUE)}

Forgery = Callable[[Evidence], Evidence | None]


def at(seconds: float) -> datetime:
    return DAWN + timedelta(seconds=seconds)


def evidence() -> Evidence:
    """Return the evidence of two undisturbed leases."""
    names = ("one", "two")
    rows: dict[str, list[dict[str, Any]]] = {
        "leases": [lease(name) for name in names],
        "reservations": [reservation(name) for name in names],
        "resources": [{"id": n, "external_id": f"sim-{n}"} for n, _ in enumerate(names)],
        "allocations": [allocation(name, number) for number, name in enumerate(names)],
        "events": [event(name, kind) for name in names for kind in DUE],
        "relay": [{"last_seq": 2 * len(LIFE), "published_seq": 2 * len(LIFE)}],
    }
    messages = [message(name, kind) for kind in LIFE for name in names]
    for seq, one in enumerate(messages, start=1):
        one["seq"] = seq
    rows["outbox"] = [{"seq": item["seq"], "message_id": item["message_id"]} for item in messages]
    effects = [effect(name, kind, number) for kind in EFFECTS for number, name in enumerate(names)]
    seconds = {"ensure_pool": DUE[START] + 1, "remove_host": DUE[END] + 1}
    done = {f"{kind} pool-{name}": at(when) for kind, when in seconds.items() for name in names}
    given: dict[str, Any] = {"rows": rows, "effects": effects, "messages": messages, "done": done}
    return Evidence(acknowledged=names, now=at(60), **given)


def lease(name: str) -> dict[str, Any]:
    dates = {"start_at": at(DUE[START]), "end_at": at(DUE[END])}
    return {"id": name, "status": "TERMINATED", "degraded": False, **dates}


def reservation(name: str) -> dict[str, Any]:
    params = {"min": 1, "max": 1}
    return {"id": f"pool-{name}", "lease_id": name, "status": "deleted", "params": params}


def allocation(name: str, host: int) -> dict[str, Any]:
    dates = {"start_at": at(DUE[START]), "busy_until": at(DUE[END])}
    return {"id": host, "resource_id": host, "reservation_id": f"pool-{name}", **dates}


def event(name: str, kind: str) -> dict[str, Any]:
    claim = {"status": "DONE", "owner": None, "claimed_until": None, "attempt": 1}
    dates = {"due_at": at(DUE[kind]), "updated_at": at(DUE[kind] + 1)}
    return {"id": f"{kind}-{name}", "lease_id": name, "kind": kind, **claim, **dates}


def message(name: str, kind: str) -> dict[str, Any]:
    return {"message_id": f"{kind}-{name}", "lease_id": name, "event_type": kind}


def effect(name: str, kind: str, number: int) -> dict[str, Any]:
    about_pool = {"pool": f"pool-{name}"} if kind not in {"snapshot", "delete_servers"} else {}
    about_host = {"host": f"sim-{number}"} if not kind.endswith("_pool") else {}
    return {"effect": kind, **about_pool, **about_host}


def row_of(found: Evidence, table: str, **wanted: object) -> dict[str, Any]:
    return next(row for row in found.rows[table] if wanted.items() <= row.items())


def delivered(found: Evidence, kind: str, name: str) -> int:
    ids = [item["message_id"] for item in found.messages]
    return ids.index(f"{kind}-{name}")


def done(found: Evidence, kind: str, number: int) -> int:
    return found.effects.index(effect(("one", "two")[number], kind, number))


def without(many: Any, index: int) -> list[Any]:
    return [one for number, one in enumerate(many) if number != index]


# Forgeries: each returns other evidence, or changes the rows.


def an_effect_twice(found: Evidence) -> Evidence:
    twice = found.effects[done(found, "add_host", 0)]
    return replace(found, effects=[*found.effects, twice])


def a_second_image(found: Evidence) -> Evidence:
    index = done(found, "snapshot", 1)
    return replace(found, effects=[*found.effects[:index], *found.effects[index - 1 :]])


def a_pool_made_again_after_the_end(found: Evidence) -> Evidence:
    return replace(found, effects=[*found.effects, found.effects[0]])


def a_pool_left_behind(found: Evidence) -> Evidence:
    return replace(found, effects=without(found.effects, done(found, "delete_pool", 1)))


def a_host_left_in_its_pool(found: Evidence) -> Evidence:
    return replace(found, effects=without(found.effects, done(found, "remove_host", 1)))


def no_image(found: Evidence) -> Evidence:
    return replace(found, effects=without(found.effects, done(found, "snapshot", 0)))


def servers_left_on_a_host(found: Evidence) -> Evidence:
    return replace(found, effects=without(found.effects, done(found, "delete_servers", 0)))


def effects_in_another_order(found: Evidence) -> Evidence:
    start, image = done(found, "add_host", 0), done(found, "snapshot", 0)
    changed = list(found.effects)
    changed[start], changed[image] = changed[image], changed[start]
    return replace(found, effects=changed)


def an_effect_without_a_lease(found: Evidence) -> Evidence:
    return replace(found, effects=[*found.effects, effect("three", "ensure_pool", 3)])


def a_start_before_its_time(found: Evidence) -> Evidence:
    return replace(found, done={**found.done, "ensure_pool pool-two": at(DUE[START] - 1)})


def an_end_before_its_time(found: Evidence) -> Evidence:
    return replace(found, done={**found.done, "remove_host pool-one": at(DUE[END] - 1)})


def a_message_lost(found: Evidence) -> Evidence:
    index = delivered(found, f"lease.event.{START}", "two")
    return replace(found, messages=without(found.messages, index))


def messages_of_a_lease_in_another_order(found: Evidence) -> Evidence:
    start = delivered(found, f"lease.event.{START}", "one")
    end = delivered(found, f"lease.event.{END}", "one")
    changed = list(found.messages)
    changed[start], changed[end] = changed[end], changed[start]
    return replace(found, messages=changed)


def a_start_without_a_notification(found: Evidence) -> Evidence:
    """Neither written nor sent: numbers have no gap."""
    index = delivered(found, f"lease.event.{END}", "two")
    start = delivered(found, f"lease.event.{START}", "two")
    found.messages[index]["message_id"] = found.messages[start]["message_id"]  # type: ignore[index]
    return replace(found, messages=without(found.messages, start))


def a_number_skipped(found: Evidence) -> None:
    found.rows["outbox"][-1]["seq"] += 1


def a_message_unpublished(found: Evidence) -> None:
    found.rows["relay"][0]["published_seq"] -= 1


def a_lease_lost(found: Evidence) -> Evidence:
    return replace(found, acknowledged=("one", "two", "three"))


def a_rejected_lease(found: Evidence) -> Evidence:
    return replace(found, acknowledged=("one",))


def a_lease_not_over(found: Evidence) -> None:
    row_of(found, "leases", id="one")["status"] = "ACTIVE"


def an_event_still_claimed(found: Evidence) -> None:
    claim = {"status": "IN_PROGRESS", "owner": "a dead one", "claimed_until": at(99)}
    row_of(found, "events", lease_id="one", kind=BEFORE_START).update(claim)


def a_start_that_failed(found: Evidence) -> None:
    row_of(found, "events", lease_id="one", kind=START)["status"] = "ERROR"


def a_host_booked_twice(found: Evidence) -> None:
    row_of(found, "allocations", id=1)["resource_id"] = 0


FORGERIES: list[Forgery] = [
    an_effect_twice,
    a_second_image,
    a_pool_made_again_after_the_end,
    a_pool_left_behind,
    a_host_left_in_its_pool,
    no_image,
    servers_left_on_a_host,
    effects_in_another_order,
    an_effect_without_a_lease,
    a_start_before_its_time,
    an_end_before_its_time,
    a_message_lost,
    messages_of_a_lease_in_another_order,
    a_start_without_a_notification,
    a_number_skipped,
    a_message_unpublished,
    a_lease_lost,
    a_rejected_lease,
    a_lease_not_over,
    an_event_still_claimed,
    a_start_that_failed,
    a_host_booked_twice,
]


def test_evidence_of_undisturbed_leases_passes() -> None:
    outcome = check(evidence())
    assert (outcome.tried_again, outcome.told_again, outcome.too_late) == (0, 0, 0)


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_each_forgery_fails_its_check(forge: Forgery) -> None:
    found = copy.deepcopy(evidence())
    forged = forge(found) or found
    with pytest.raises(AssertionError):
        check(forged)


def test_counts_repetitions_that_are_allowed() -> None:
    found = evidence()
    row_of(found, "events", lease_id="two", kind=END)["attempt"] = 3
    again = [*found.messages, found.messages[4]]
    outcome = check(replace(found, messages=again))
    assert (outcome.tried_again, outcome.told_again, outcome.too_late) == (2, 1, 0)


def test_a_reminder_may_be_missing_if_no_manager_ran_before_the_start() -> None:
    found = evidence()
    row_of(found, "events", lease_id="one", kind=BEFORE_START)["updated_at"] = at(DUE[START] + 5)
    first = [
        item for item in found.messages if item["message_id"] != f"lease.event.{BEFORE_START}-one"
    ]
    found.rows["outbox"][:] = [
        {"seq": n, "message_id": one["message_id"]} for n, one in enumerate(first, start=1)
    ]
    found.rows["relay"][0] = {"last_seq": len(first), "published_seq": len(first)}
    messages = [{**one, "seq": n} for n, one in enumerate(first, start=1)]
    assert check(replace(found, messages=messages)).too_late == 1
