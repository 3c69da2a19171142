"""Sixteen processes accept, delete and expire the same offers: one of these wins each offer.

The processes have three roles. Those that accept or delete see the last second of the offers, and
managers see their expiry.
"""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy.orm import Session

from climate.core.lease.model import Lease
from climate.db.events import queue as event_queue
from climate.db.leases import leases
from climate.manager import offers
from climate.manager.audit.invariants import violations
from climate.manager.events.dispatcher import Dispatcher
from climate.manager.leases import holds
from climate.manager.process.runtime import Runtime
from tests.race.crowd import SIZE, Crowd, at_work, wait_for_all
from tests.support.rows import dump
from tests.support.service import Story

OFFERS = "/v2/offers"
COUNT = 12
HOLD = 60
ROLES = ("accept", "delete", "expire")
# Without the guard a race must be lost; otherwise the test repeats it.
TRIES = 8

Answers = list[tuple[str, str, int]]


@pytest.fixture
def here(database_url: str) -> Iterator[Story]:
    """Return the service in this process, with hosts."""
    with at_work(database_url, offers__per_project=COUNT) as story:
        story.register(COUNT)
        yield story


def make(story: Story) -> list[str]:
    """Make an offer of one host for each host; each expires a second after the previous one."""
    bodies = [story.asking(hold=HOLD + number) for number in range(COUNT)]
    return [story.ok("POST", OFFERS, body)["id"] for body in bodies]


def contend(number: int, url: str, ids: list[str], guarded: bool, ahead: float = 0) -> Answers:
    """Accept, delete or expire all offers; return role, offer and status of each request.

    Managers start ``ahead`` seconds before the other processes.
    """
    role = ROLES[number % len(ROLES)]
    with _paused(), _locked(active=guarded), at_work(url) as story:
        wait_for_all()
        story.clock.advance(HOLD - 1)
        if role == "expire":
            manager = Dispatcher(story.runtime, f"manager-{number}")
            for _ in ids:
                story.clock.advance(1)
                manager.run_due()
                time.sleep(0.06)
            return []
        time.sleep(ahead)
        answers = []
        for id_ in ids:
            path = f"{OFFERS}/{id_}"
            call = ("POST", f"{path}/accept") if role == "accept" else ("DELETE", path)
            answers.append((role, id_, story.call(*call).status_code))
        return answers


@contextmanager
def _paused() -> Iterator[None]:
    """Wait some milliseconds between the check of an offer and the change."""
    check, accept = holds.is_being_released, leases.accept_offer

    def checked(lease: Lease) -> bool:
        result = check(lease)
        time.sleep(0.005)
        return result

    def accepted(*arguments: Any) -> bool:
        result = accept(*arguments)
        time.sleep(0.005)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holds, "is_being_released", checked)
        patch.setattr(leases, "accept_offer", accepted)
        yield


@contextmanager
def _locked(*, active: bool) -> Iterator[None]:
    """Read the offer without a lock, in a transaction of its own, unless ``active``."""

    def apart(session: Session, offer_id: str, now: datetime) -> Lease:
        with Session(session.get_bind(), info=session.info) as other:
            lease = leases.get(other, offer_id)
            offers.check_open(lease, now)
        holds.is_being_released(lease)
        return lease

    def confirm(session: Session, _offer: Lease, lease: Lease, now: datetime) -> bool:
        present = apart(session, lease.id, now)
        event_queue.remove(session, [event.id for event in present.events])
        leases.update(session, lease)
        return True

    def lock(runtime: Runtime, session: Session, offer_id: str) -> Lease:
        return apart(session, offer_id, runtime.clock.now())

    with pytest.MonkeyPatch.context() as patch:
        if not active:
            patch.setattr(offers, "_lock_open", lock)
            patch.setattr(offers, "_confirm_open", confirm)
        yield


def outcome(story: Story, answers: Answers) -> tuple[Counter[str], set[str]]:
    """Return how the offers ended, and those of which an acknowledged result does not hold."""
    rows = dump(story.runtime.database)
    statuses = {lease["id"]: lease["status"] for lease in rows["leases"]}
    reservations = {row["id"]: row["lease_id"] for row in rows["reservations"]}
    booked = Counter(reservations[row["reservation_id"]] for row in rows["allocations"])
    won = Counter[str]()
    wrong = set()
    for role, id_, status in answers:
        assert status in {201, 204, 404, 409, 410}, (role, status)
        if status == 201:
            won["accepted"] += 1
            if statuses.get(id_) != "PENDING" or booked[id_] != 1:
                wrong.add(id_)
        elif status == 204:
            won["deleted"] += 1
            if id_ in statuses:
                wrong.add(id_)
    wrong |= {
        id_ for id_, count in Counter(a[1] for a in answers if a[2] < 300).items() if count > 1
    }
    return won, wrong


def test_one_of_accept_delete_and_expiry_wins_each_offer(
    crowd: Crowd, here: Story, database_url: str
) -> None:
    total = Counter[str]()
    for attempt in range(TRIES):
        ids = make(here)
        # A request is faster than a pass of a manager, so its lead grows until it wins an offer.
        answers = crowd.do(contend, database_url, ids, True, 0.01 * 2**attempt)
        won, wrong = outcome(here, [answer for each in answers for answer in each])
        assert wrong == set()
        here.relay.flush()
        ends = Counter(
            kind
            for id_ in ids
            for kind in here.event_types(id_)
            if kind in {"offer.accepted", "offer.deleted", "offer.expired"}
        )
        assert sum(ends.values()) == COUNT, "each offer ends once"
        assert ends["offer.accepted"] == won["accepted"]
        assert ends["offer.deleted"] == won["deleted"]
        assert list(violations(here.runtime.store)) == []
        total += ends
        for lease in here.ok("GET", "/v2/leases?all_projects=true")["leases"]:
            here.call("DELETE", f"/v2/leases/{lease['id']}")
        if len(total) == len(ROLES):
            return
    pytest.fail(f"not every role won an offer: {total}")


def test_without_the_lock_an_acknowledged_result_is_lost(
    crowd: Crowd, here: Story, database_url: str
) -> None:
    for _ in range(TRIES):
        answers = crowd.do(contend, database_url, make(here), False)
        given = [answer for each in answers for answer in each if answer[2] != 500]
        if outcome(here, given)[1]:
            return
    pytest.fail("no result was lost, so this stress proves nothing")


def offer(number: int, url: str) -> int:
    """Make an offer, every other process for its own project."""
    with at_work(url) as story:
        project = f"project-{number}" if number % 2 else "project"
        wait_for_all()
        return story.call(
            "POST", OFFERS, story.asking(), token=f"user:{project}:member"
        ).status_code


def test_parallel_offers_of_a_project_do_not_exceed_their_number(
    crowd: Crowd, here: Story, database_url: str
) -> None:
    here.ok("GET", OFFERS)
    answers = crowd.do(offer, database_url)
    assert Counter(answers[::2])[201] == 3
    assert set(answers) <= {201, 403, 409, 503}
    assert len(answers) == SIZE
