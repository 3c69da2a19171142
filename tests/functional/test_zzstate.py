"""Leases are made, changed and removed in any order, while time passes and things break.

Whatever happens, the invariants hold after each step, and in the end every host is back.
"""

import itertools
from datetime import datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from climate.manager.dispatcher import Dispatcher
from climate.plugins.simulated import SimulatedCloud, SimulatedFailure
from tests import rows
from tests.conftest import NOON, MakeStory
from tests.functional import invariants
from tests.rows import Rows
from tests.service import FORMAT, Story, host_reservation

CLEANING = timedelta(minutes=5)
HOSTS = 3


import os
from collections import Counter
T=Counter()
class Died(BaseException):
    """The manager was killed: nothing of it runs any more, not even its handling of errors."""


class MoodyCloud(SimulatedCloud):
    """A cloud whose next effects do what ``moods`` says, and work when that is used up."""

    moods: list[str]

    def _effect(self, name: str, **details: str) -> None:
        mood = self.moods.pop(0) if self.moods else "works"
        if mood == "fails":
            raise SimulatedFailure(f"{name} is broken")
        if mood == "dies before":
            raise Died
        super()._effect(name, **details)
        if mood == "dies after":
            raise Died


starts = st.sampled_from([0, 0, 0, 1, 5, 20, -1])
lengths = st.sampled_from([1, 5, 10, 30, 90])
counts = st.tuples(st.sampled_from([1, 1, 2]), st.integers(0, HOSTS - 1))
# By how many minutes a date moves; None leaves it alone.
shifts = st.sampled_from([None, None, None, -30, -10, -1, 1, 10, 30])
moods = st.lists(
    st.sampled_from(["works", "fails", "dies before", "dies after"]), min_size=1, max_size=4
)


class Leases(RuleBasedStateMachine):
    """One service, its users, its cloud, and a clock."""

    story: Story
    empty: Rows

    def __init__(self) -> None:
        super().__init__(); T["EXAMPLES"]+=1
        rows.put_back(self.story.runtime.database, self.empty)
        self.story.clock.set(NOON)
        self.cloud = MoodyCloud(self.story.conf)
        self.cloud.moods = []
        plugin: Any = self.story.runtime.plugins["physical:host"]
        plugin.cloud = self.cloud
        self.names = itertools.count()
        self.hire()

    def hire(self) -> None:
        """Have a new manager take over from one that is no more."""
        self.manager = Dispatcher(self.story.runtime, f"manager-{next(self.names)}")

    def rows(self) -> Rows:
        return rows.dump(self.story.runtime.database)

    def ids(self) -> list[str]:
        made = sorted(self.rows()["leases"], key=lambda lease: (lease["created_at"], lease["name"]))
        return [lease["id"] for lease in made]

    def some_lease(self, number: int) -> str:
        ids = self.ids()
        return ids[number % len(ids)]

    def request(self, method: str, path: str, body: Any = None) -> None:
        """Send a request; it is served, or refused with a reason and without a trace."""
        before = self.rows()
        response = self.story.call(method, path, body)
        T[(method, response.status_code, response.headers.get("Climate-Error-Code"))]+=1
        assert response.status_code < 500, response.get_data(as_text=True)
        if response.status_code >= 400:
            assert response.get_json()["error_message"]
            assert self.rows() == before

    def work(self) -> None:
        """Have the manager do what is due; if it dies of that, another one takes its place."""
        try:
            self.manager.run_due()
        except Died:
            self.hire()

    @rule(
        start=starts,
        length=lengths,
        asked=st.lists(counts, max_size=2),
        before_end=shifts,
        event=shifts,
        kind=st.sampled_from(["backup", "before_start_lease", "before_end_lease"]),
    )
    def create(
        self,
        start: int,
        length: int,
        asked: list[tuple[int, int]],
        before_end: int | None,
        event: int | None,
        kind: str,
    ) -> None:
        date, end = self.story.date, start + length
        body = self.story.lease_body(
            start,
            end,
            name=f"lease {next(self.names)}",
            before_end_date=None if before_end is None else date(end - abs(before_end)),
            reservations=[host_reservation(low, low + more) for low, more in asked],
            events=[] if event is None else [{"event_type": kind, "time": date(start + event)}],
        )
        self.request("POST", "/v1/leases", body)

    @precondition(lambda self: self.ids())
    @rule(
        number=st.integers(0, 20),
        start=shifts,
        end=shifts,
        before_end=shifts,
        asked=st.none() | counts,
        which=st.integers(0, 1),
    )
    def update(
        self,
        number: int,
        start: int | None,
        end: int | None,
        before_end: int | None,
        asked: tuple[int, int] | None,
        which: int,
    ) -> None:
        lease = self.story.lease(self.some_lease(number))
        body: dict[str, Any] = {"name": f"lease {next(self.names)}"}
        for key, moved, edge in (
            ("start_date", start, lease["start_date"]),
            ("end_date", end, lease["end_date"]),
            ("before_end_date", before_end and -abs(before_end), lease["end_date"]),
        ):
            if moved is not None:
                date = datetime.fromisoformat(edge) + timedelta(minutes=moved)
                body[key] = f"{date:{FORMAT}}"
        if asked is not None and lease["reservations"]:
            chosen = lease["reservations"][which % len(lease["reservations"])]["id"]
            body["reservations"] = [{"id": chosen, "min": asked[0], "max": sum(asked)}]
        self.request("PUT", f"/v1/leases/{lease['id']}", body)

    @precondition(lambda self: self.ids())
    @rule(number=st.integers(0, 20))
    def end_now(self, number: int) -> None:
        self.request("PUT", f"/v1/leases/{self.some_lease(number)}", {"end_date": "now"})

    @precondition(lambda self: self.ids())
    @rule(number=st.integers(0, 20))
    def delete(self, number: int) -> None:
        self.request("DELETE", f"/v1/leases/{self.some_lease(number)}")

    @rule(steps=st.lists(st.sampled_from([1, 60, 300, 900]), min_size=1, max_size=4))
    def time_passes(self, steps: list[int]) -> None:
        for seconds in steps:
            self.story.clock.advance(seconds)
            self.manager.keep()
            self.work()

    @rule(seconds=st.sampled_from([1, 59, 600, 3000]))
    def time_passes_while_the_manager_is_away(self, seconds: int) -> None:
        self.story.clock.advance(seconds)

    @rule()
    def the_manager_works(self) -> None:
        self.work()

    @rule(moods=moods)
    def the_cloud_is_moody(self, moods: list[str]) -> None:
        self.cloud.moods = moods

    @rule()
    def the_cloud_is_down(self) -> None:
        self.cloud.moods = ["fails"] * 30

    @rule(limit=st.integers(1, 3))
    def a_manager_dies_with_events_in_hand(self, limit: int) -> None:
        Dispatcher(self.story.runtime, f"manager-{next(self.names)}")._claim(limit)

    @invariant()
    def all_is_well(self) -> None:
        pools = self.cloud._world.pools; T["CHECKS"]+=1
        for l in self.rows()["leases"]: T[l["status"]]+=1
        for l in self.rows()["events"]: T[l["kind"], l["status"]]+=1
        if any(len(p) for p in pools.values()): T["pools"]+=1
        invariants.check(self.rows(), pools, self.story.clock.now(), CLEANING)

    def teardown(self) -> None:
        """Mend everything: then every lease ends, and gives back all that it had."""
        self.cloud.moods = []
        for _ in range(20):
            self.story.clock.advance(600)
            self.manager.keep()
            self.work()
            self.all_is_well()
        assert {lease["status"] for lease in self.rows()["leases"]} <= {"TERMINATED"}
        assert self.cloud._world.pools == {}


def test_whatever_happens_no_invariant_breaks(make_story: MakeStory) -> None:
    story = make_story(DEFAULT__cleaning_time=5, simulated__journal=None)
    story.register(HOSTS)
    empty = rows.dump(story.runtime.database)
    machine = type("Leases", (Leases,), {"story": story, "empty": empty})
    import atexit; atexit.register(lambda: [print(n,k) for k,n in sorted(T.items(), key=lambda p:-p[1])])
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=int(os.environ['N']),
            stateful_step_count=int(os.environ.get('S','25')),
            deadline=None,database=None,print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
