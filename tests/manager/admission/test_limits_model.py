"""Random creates, changes and deletions: limits hold, and every rejection is justified.

All is in whole hours, so that a model can count hour by hour.
"""

import random
from dataclasses import dataclass, field

import pytest

from climate.core.errors import LimitExceeded
from tests.conftest import MakeStory
from tests.support.service import Story, host_reservation

HOSTS, HOURS, PERIOD, HORIZON = 3, 14, 12, 16
STEPS = 50
NIGHTLY = pytest.mark.nightly(reason="two seeds cover the model; more only search")
MOST_HOSTS = 6
OWNER = "alice:lab"


@dataclass
class Model:
    """How many hosts each lease has in each hour, deleted leases included."""

    now: int = 0
    used: dict[str, dict[int, int]] = field(default_factory=dict)

    def total(self, hour: int) -> int:
        return sum(hours.get(hour, 0) for hours in self.used.values())

    def would_exceed(self, lease: str, hours: dict[int, int]) -> bool:
        """Return whether a limit would be exceeded in an hour in which a lease adds hosts."""
        before = self.used.get(lease, {})
        added = [hour for hour in hours if hours[hour] > before.get(hour, 0)]
        self.used[lease] = hours
        peaks = any(self.total(hour) > HOSTS for hour in added)
        windows = {first for hour in added for first in range(hour - PERIOD, hour + 2)}
        sums = [sum(self.total(h) for h in range(first, first + PERIOD)) for first in windows]
        self.used[lease] = before
        return peaks or any(found > HOURS for found in sums)


class World:
    """A service, the expected state, and random requests."""

    def __init__(self, story: Story, seed: int) -> None:
        self.story, self.model = story, Model()
        self.dice = random.Random(seed)  # noqa: S311 - the same leases in each run
        story.runtime.rng.seed(seed)
        self.open: dict[str, tuple[int, int, int]] = {}
        self.refusals = 0

    def make(self) -> None:
        start = self.model.now + self.dice.randrange(HORIZON)
        end, hosts = start + self.dice.randint(1, 8), self.dice.randint(1, 3)
        asked = host_reservation(hosts, hosts)
        body = self.story.lease_body(
            60 * (start - self.model.now), 60 * (end - self.model.now), reservations=[asked]
        )
        made = self._send("POST", "/v1/leases", body, "new", _hours(start, end, hosts))
        if made is not None:
            self.model.used[made] = _hours(start, end, hosts)
            self.open[made] = (start, end, hosts)

    def change(self, lease: str) -> None:
        start, end, hosts = self.open[lease]
        running = start <= self.model.now
        if not running and self.dice.random() < 0.5:
            shift = self.dice.randint(-3, 6)
            start, end = max(start + shift, self.model.now + 1), end + shift
        end = max(start, self.model.now) + self.dice.randint(1, 8)
        hosts = self.dice.randint(hosts if running else 1, 3)
        now = self.model.now
        reservation = self.story.lease(lease)["reservations"][0]["id"]
        body = {
            "end_date": self.story.date(60 * (end - now)),
            "reservations": [{"id": reservation, "min": hosts, "max": hosts}],
        }
        if not running:
            body["start_date"] = self.story.date(60 * (start - now))
        kept = {h: n for h, n in self.model.used[lease].items() if h < now}
        hours = kept | _hours(max(start, now) if running else start, end, hosts)
        if self._send("PUT", f"/v1/leases/{lease}", body, lease, hours) is not None:
            self.model.used[lease] = hours
            self.open[lease] = (start, end, hosts)

    def delete(self, lease: str) -> None:
        self.story.ok("DELETE", f"/v1/leases/{lease}", token=OWNER)
        self.story.run()
        del self.open[lease]
        used = self.model.used[lease]
        self.model.used[lease] = {hour: used[hour] for hour in used if hour < self.model.now}

    def wait(self) -> None:
        self.model.now += 1
        self.story.at(60)
        self.open = {id_: one for id_, one in self.open.items() if one[1] > self.model.now}

    def step(self) -> None:
        lease = self.dice.choice(list(self.open)) if self.open else None
        what = self.dice.random()
        if lease is None or what < 0.45:
            self.make()
        elif what < 0.65:
            self.change(lease)
        elif what < 0.75:
            begun = [id_ for id_, one in self.open.items() if one[0] < self.model.now]
            self.delete(next(iter(begun), lease))
        else:
            self.wait()

    def _send(
        self, method: str, path: str, body: object, lease: str, hours: dict[int, int]
    ) -> str | None:
        """Send a request, and check that the answer is the model's."""
        answer = self.story.call(method, path, body, token=OWNER)
        known = answer.headers.get("Climate-Error-Code")
        if known == "not_enough_resources":  # a running lease whose hosts are taken later
            return None
        expected = self.model.would_exceed(lease, hours)
        if lease == "new":
            self.model.used.pop("new")
        seen = (self.model, lease, hours, answer.get_data(as_text=True))
        assert (known == LimitExceeded.code) == expected, seen
        if expected:
            self.refusals += 1
            return None
        assert answer.status_code < 300, seen
        return str(answer.get_json()["lease"]["id"])


def _hours(start: int, end: int, hosts: int) -> dict[int, int]:
    return dict.fromkeys(range(start, end), hosts)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=NIGHTLY) for seed in range(2, 12))]
)
def test_requests_are_rejected_exactly_when_the_model_exceeds_a_limit(
    make_story: MakeStory, seed: int
) -> None:
    story = make_story(
        limits__enabled=True,
        limits__project_hosts=HOSTS,
        limits__project_host_hours=HOURS,
        limits__period=PERIOD * 3600,
    )
    story.register(MOST_HOSTS)
    world = World(story, seed)
    for _ in range(STEPS):
        world.step()
    assert world.refusals > STEPS / 10
    assert len(world.model.used) > STEPS / 10
