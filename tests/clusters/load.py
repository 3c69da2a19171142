"""Users who create leases all the time, and what they were promised."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Self

import requests

from tests.support.process import Service, date, eventually
from tests.support.service import host_reservation

# Seconds between two requests of a user.
_PAUSE = 0.05
# Seconds for a cluster to go on.
_PATIENCE = 120.0


class Load:
    """Two users of each service create leases until the end of the context.

    Every tenth lease of a user starts at once, the others later, one after the other.
    """

    def __init__(self, *services: Service) -> None:
        self._stopping = threading.Event()
        users = [service for service in services for _ in range(2)]
        self._threads = [
            threading.Thread(target=self._run, args=(at, service))
            for at, service in enumerate(users)
        ]
        #: The ids of acknowledged leases, and of those that start at once.
        self.acknowledged: list[str] = []
        self.started: list[str] = []
        self.failures: Counter[int] = Counter()
        self.timeouts = 0
        #: When each acknowledgement came, in monotonic seconds, with the port of the service.
        self.times: list[tuple[float, int]] = []
        #: How many seconds each request took, whatever the answer.
        self.durations: list[float] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, user: int, service: Service) -> None:
        for number in itertools.count():
            if self._stopping.is_set():
                return
            starts_now = number % 10 == 0
            began = time.monotonic()
            try:
                body = lease(user, number, starts_now=starts_now)
                answer = service.call("POST", "/v1/leases", body)
            except requests.exceptions.ReadTimeout:
                # A cluster may stop while a node that returns copies its state on a busy machine.
                # The user does not know the outcome, and goes on.
                self.timeouts += 1
                continue
            self.durations.append(time.monotonic() - began)
            if answer.status_code == 201:
                self.times.append((time.monotonic(), service.port))
                id_ = answer.json()["lease"]["id"]
                self.acknowledged.append(id_)
                if starts_now:
                    self.started.append(id_)
            else:
                self.failures[answer.status_code] += 1
            time.sleep(_PAUSE)

    def count(self, *services: Service) -> int:
        """Return how many requests the services have acknowledged (without services: all)."""
        ports = {service.port for service in services}
        return sum(1 for _, port in list(self.times) if not ports or port in ports)

    def await_more(self, *services: Service) -> None:
        """Wait until each of the services has acknowledged more leases."""
        for service in services:
            enough = self.count(service) + 10
            more = partial(self._has_more, service, enough)
            eventually(more, "leases are acknowledged", _PATIENCE)

    def _has_more(self, service: Service, count: int) -> bool:
        return self.count(service) > count

    def pauses(self, *services: Service) -> list[float]:
        """Return the seconds between acknowledgements of the services, the longest last."""
        ports = {service.port for service in services}
        times = sorted(at for at, port in self.times if not ports or port in ports)
        return sorted(after - before for before, after in pairwise(times))

    def report(self, late: Sequence[float], *services: Service) -> dict[str, object]:
        """Return the figures of docs/evidence/faults.md: counts; seconds as median, 99 %, maximum.

        ``pauses`` are the longest ones of ``services``; ``late`` is how late leases started.
        """
        return {
            "acknowledged": self.count(),
            "failures": dict(self.failures),
            "timeouts": self.timeouts,
            "requests": _spread(self.durations),
            "pauses": [round(pause, 2) for pause in self.pauses(*services)[:-11:-1]],
            "starts": [len(late), *_spread(late)],
        }


def _spread(seconds: Sequence[float]) -> list[float]:
    """Return the median, the 99th percentile and the maximum."""
    found = sorted(seconds)
    return [round(found[int(part * (len(found) - 1))], 2) for part in (0.5, 0.99, 1)]


def lease(user: int, number: int, *, starts_now: bool = False) -> dict[str, Any]:
    """Return a request for a lease of one host."""
    minutes = 200 + 2 * number
    return {
        "name": f"lease {number} of user {user}",
        "start_date": "now" if starts_now else date(minutes),
        "end_date": date(120 if starts_now else minutes + 1),
        "reservations": [host_reservation(1, 1)],
    }
