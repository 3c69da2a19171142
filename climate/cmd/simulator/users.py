"""The users of a simulation: they send the requests of a trace, and end their leases early."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from climate.cmd.simulator.metrics import Outcome
from climate.cmd.simulator.traces import Job
from climate.cmd.simulator.world import World
from climate.core.lease.model import HOST
from climate.core.lease.schedule import START
from climate.core.notifications import event_type
from climate.core.notifications.message import Notification

_TOKEN = {"X-Auth-Token": "user:project"}
_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_HORIZON = timedelta(days=366)


@dataclass(frozen=True, slots=True, order=True)
class Wish:
    """A request of a user at a time: for the lease of the job ``number``, or to end that lease.

    Of simultaneous wishes, ends come first, then the jobs in their order.
    """

    at: datetime
    is_new: bool
    number: int


@dataclass(slots=True)
class Users:
    """The users of all jobs. If ``waits`` is set, a job that does not fit waits for capacity."""

    world: World
    jobs: Sequence[Job]
    waits: bool
    wishes: list[Wish] = field(init=False)
    withdrawn: int = 0
    _numbers: dict[str, int] = field(default_factory=dict)
    _lease_ids: dict[int, str] = field(default_factory=dict)
    _started: dict[int, int] = field(default_factory=dict)
    _refused: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Plan the requests of all jobs."""
        self.wishes = [
            Wish(self._moment(job.at), is_new=True, number=n) for n, job in enumerate(self.jobs)
        ]
        heapq.heapify(self.wishes)

    @property
    def outcomes(self) -> list[Outcome]:
        """What became of the jobs, in their order."""
        return [
            Outcome(job=job, started=self._started.get(n), refused=self._refused.get(n))
            for n, job in enumerate(self.jobs)
        ]

    @property
    def settled(self) -> int:
        """The number of jobs that were refused or have started."""
        return len(self._started) + len(self._refused)

    def ask(self, wish: Wish) -> bool:
        """Send the request of a wish over HTTP; return whether it may have freed capacity."""
        if wish.is_new:
            self._create(wish.number)
        else:
            self._end(wish.number)
        return not wish.is_new

    def hear(self, notification: Notification, payload: Mapping[str, Any]) -> None:
        """Plan the end of a lease that has started; count withdrawn promises."""
        self.withdrawn += notification.event_type == event_type.LEASE_PROMISE_WITHDRAWN
        number = self._numbers.get(notification.lease_id or "")
        is_start = notification.event_type == event_type.of_event(START)
        if not is_start or number is None or payload["status"] != "ACTIVE":
            return
        job, start = self.jobs[number], notification.created_at
        self._started[number] = int((start - self.world.begin).total_seconds())
        if job.run < job.requested:
            end = start + timedelta(seconds=job.run)
            heapq.heappush(self.wishes, Wish(end, is_new=False, number=number))

    def _create(self, number: int) -> None:
        answer = self.world.http.post(
            "/v2/leases", json=self._body(self.jobs[number]), headers=_TOKEN
        )
        body = answer.get_json()
        if answer.status_code == 201:  # noqa: PLR2004 - Created
            self._numbers[body["id"]], self._lease_ids[number] = number, body["id"]
        else:
            self._refused[number] = body["code"]

    def _end(self, number: int) -> None:
        path = f"/v2/leases/{self._lease_ids[number]}"
        answer = self.world.http.patch(path, json={"end": "now"}, headers=_TOKEN)
        if answer.status_code != 200:  # noqa: PLR2004 - OK
            raise RuntimeError(answer.text)

    def _body(self, job: Job) -> dict[str, Any]:
        params = {"min": job.hosts, "max": job.hosts}
        body: dict[str, Any] = {
            "name": "job",
            "duration": job.requested,
            "reservations": [{"resource_type": HOST, "params": params}],
        }
        if job.start is not None:
            return {**body, "start": f"{self._moment(job.start):{_FORMAT}}"}
        if self.waits:
            return {**body, "start": "asap", "wait": {}}
        end_by = self.world.clock.now() + _HORIZON
        return {**body, "start": "asap", "end_by": f"{end_by:{_FORMAT}}"}

    def _moment(self, seconds: int) -> datetime:
        return self.world.begin + timedelta(seconds=seconds)
