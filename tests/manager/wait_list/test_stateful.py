"""Random sequences of requests for leases that wait, while time passes and hosts fail."""

import random
import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from climate.core.lease.wait_list import Wait
from climate.core.window import Margins, Window, second_from
from climate.db.leases import leases, waits
from climate.db.resources import resources
from climate.manager.admission import window_search
from climate.manager.audit.invariants import violations
from climate.manager.leases import healing
from climate.manager.wait_list.placing import requirements_of_lease
from tests.conftest import NOON, MakeStory
from tests.support import rows
from tests.support.rows import Rows
from tests.support.service import Story, hosts
from tests.support.waiting import rules, settle, waiting

NIGHTLY = pytest.mark.nightly(reason="searches at random for minutes")
POOL, HOSTS = "physical:host", 4
MANY = 150

sizes, lengths = st.integers(1, HOSTS), st.sampled_from([1, 10, 30, 90])
priorities, numbers = st.sampled_from([0, 0, 0, 1, 9]), st.integers(0, 20)


class WaitList(RuleBasedStateMachine):
    """A service with few hosts, its users and a clock."""

    story: Story
    empty: Rows
    dice: random.Random
    seen: set[str]

    def __init__(self) -> None:
        super().__init__()
        rows.put_back(self.story.runtime.database, self.empty)
        self.dice.seed(1)
        self.story.runtime.rng.seed(1)
        self.story.clock.set(NOON)
        self.promises: dict[str, datetime] = {}
        self.firm, self.most = True, 1

    @initialize(promises=st.integers(0, 3), firm=st.sampled_from([True, True, False]))
    def begin(self, promises: int, firm: bool) -> None:
        self.firm, self.most = firm, promises
        rules(self.story, promises=promises, is_firm=firm)

    def request(self, method: str, path: str, body: Any = None) -> None:
        response = self.story.call(method, path, body)
        assert response.status_code < 500, response.get_data(as_text=True)
        self.seen.add(f"{method} {response.status_code}")
        settle(self.story)

    def some_lease(self, number: int) -> str:
        found = self.story.ok("GET", "/v2/leases?limit=1000")["leases"]
        live = [lease for lease in found if lease["status"] != "TERMINATED"] or found
        return str(sorted(live, key=lambda lease: lease["created_at"])[number % len(live)]["id"])

    def is_empty(self) -> bool:
        return not self.story.ok("GET", "/v2/leases")["leases"]

    @rule(size=sizes, length=lengths, priority=priorities, patience=st.sampled_from([None, 5, 60]))
    def wait(self, size: int, length: int, priority: int, patience: int | None) -> None:
        wait: dict[str, Any] = {"priority": priority}
        if patience is not None:
            wait["until"] = self.story.moment(patience)
        self.request("POST", "/v2/leases", waiting(size, length, wait=wait))

    @rule(size=sizes, length=lengths, start=st.sampled_from([0, 5, 30, 60]))
    def book(self, size: int, length: int, start: int) -> None:
        body = self.story.asking(start, start + length, reservations=[hosts(size, size)])
        self.request("POST", "/v2/leases", body)

    @precondition(lambda self: not self.is_empty())
    @rule(number=numbers)
    def delete(self, number: int) -> None:
        self.request("DELETE", f"/v2/leases/{self.some_lease(number)}")

    @precondition(lambda self: not self.is_empty())
    @rule(
        number=numbers,
        body=st.sampled_from(
            [{"end": "now"}, {"wait": {"priority": 9}}, {"duration": 600}, {"start": "asap"}]
        ),
    )
    def change(self, number: int, body: dict[str, Any]) -> None:
        lease_id = self.some_lease(number)
        self.request("PATCH", f"/v2/leases/{lease_id}", body)

    @rule(minutes=st.sampled_from([0.5, 1, 5, 10, 30, 60]))
    def time_passes(self, minutes: float) -> None:
        self.story.clock.advance(minutes * 60)
        settle(self.story)

    @rule(failing=st.sets(st.integers(1, HOSTS), max_size=1))
    def hosts_fail(self, failing: set[int]) -> None:
        """Some fail, earlier ones recover, and leases get replacements."""
        runtime, now = self.story.runtime, self.story.clock.now()
        everything = set(range(1, HOSTS + 1))
        runtime.database.write(
            lambda session: resources.set_reservable(session, everything, now, reservable=True)
        )
        runtime.database.write(
            lambda session: resources.set_reservable(session, failing, now, reservable=False)
        )
        healing.heal_all(runtime, failing)
        settle(self.story)

    @invariant()
    def the_rows_are_sound(self) -> None:
        assert list(violations(self.story.runtime.store)) == []

    @invariant()
    def promises_are_few_and_only_become_earlier(self) -> None:
        now = self.story.clock.now()
        with self.story.runtime.database.read() as session:
            promised = waits.promised(session, POOL, now)
        # Leases of a soft promise that was withdrawn get another one.
        for wait in promised if self.firm else []:
            assert wait.promised_start is not None
            assert wait.promised_start <= self.promises.get(wait.lease_id, wait.promised_start)
            self.promises[wait.lease_id] = wait.promised_start
        assert len(promised) <= self.most

    @invariant()
    def no_lease_waits_although_it_fits(self) -> None:
        runtime = self.story.runtime
        with runtime.database.read() as session:
            found = waits.first_waiting(session, POOL, self.story.clock.now(), None, 100)
            self.seen.update(["waits"] if found else [])
            for wait in found:
                assert not self.fits(session, wait), wait

    def fits(self, session: Any, wait: Wait) -> bool:
        """Return whether a waiting lease could start now."""
        runtime, start = self.story.runtime, second_from(self.story.clock.now())
        if start + wait.length > wait.end_by:
            return False
        [lease] = leases.find_some(session, [wait.lease_id]).values()
        needs, window = requirements_of_lease(runtime, lease), Window(start, start + wait.length)
        margins = Margins(timedelta(0), runtime.settings.cleaning_time)
        found = window_search.earliest(runtime, session, needs, wait.length, window, margins)
        return found is not None


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("examples", "steps"), [(2, 15), pytest.param(MANY, 25, marks=NIGHTLY)])
def test_waiting_leases_keep_their_rules(
    make_story: MakeStory, monkeypatch: pytest.MonkeyPatch, examples: int, steps: int
) -> None:
    story, dice = make_story(), random.Random()  # noqa: S311 - what fails must fail again
    story.register(HOSTS)
    fields = {"story": story, "dice": dice, "seen": (seen := set[str]())}
    empty = rows.dump(story.runtime.database)
    machine = type("WaitList", (WaitList,), {**fields, "empty": empty})
    monkeypatch.setattr(
        "climate.db.engine.ids.new_id", lambda: str(uuid.UUID(int=dice.getrandbits(128), version=4))
    )
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    if examples >= MANY:  # a few examples may do without
        assert {"waits", "POST 201", "DELETE 204"} <= seen
