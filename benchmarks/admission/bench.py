"""Run the clients of a case, or those of its floor, on a loaded calendar."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.admission import servers, tasks
from benchmarks.calendar.book import Calendar
from benchmarks.clients import Limit, Outcome, run
from benchmarks.databases.processor_time import Meter
from climate.db.engine.database import Database

DIRECT = ("spread", "names", "instance", "hotspot", "full")
HTTP = ("http", "http-full")
# The case ends when all hosts are booked; this limit is far above the time that it needs.
_HOTSPOT_SECONDS = 60.0
# The share of the calendar that one run may add at most, so that the calendar hardly fills up.
_ADDED = 0.05


@dataclass(frozen=True, slots=True)
class Bench:
    """A loaded calendar, the seconds of each case, and the nodes through which clients write.

    Each case runs ``rounds`` times. Clients that call the use case directly are threads of
    ``processes`` processes (0: each has a process).
    """

    database: Database
    book: Calendar
    seconds: float
    nodes: Sequence[str] = ()
    rounds: int = 1
    processes: int = 0

    @property
    def urls(self) -> list[str]:
        """Return the URL of the database through each node, with its password."""
        url = self.database.engine.url
        servers = [node.rpartition(":") for node in self.nodes]
        through = [url.set(host=host, port=int(port)) for host, _, port in servers] or [url]
        return [each.render_as_string(hide_password=False) for each in through]

    def serving(self, make: Callable[[str], Any]) -> Any:  # noqa: ANN401 - a context manager
        """Return a context with a server of an application, which uses the first node."""
        return servers.serving(make, self.urls[0])

    def ask(self, case: str, clients: int, turn: int, meters: Collection[Meter] = ()) -> Outcome:
        """Create leases with the use case itself."""
        limit = self._limit(case, clients)
        arguments = (self.urls, case, self.book, turn, clients)
        return run(tasks.ask, clients, limit, *arguments, processes=self.processes, meters=meters)

    def post(
        self,
        server: servers.Server,
        case: str,
        clients: int,
        turn: int,
        meters: Collection[Meter] = (),
    ) -> Outcome:
        """Create leases over HTTP, with climate or with the bare server."""
        limit = self._limit(case, clients)
        return run(tasks.post, clients, limit, server.port, case, self.book, turn, meters=meters)

    def warm(self, server: servers.Server, case: str, clients: int) -> None:
        """Fill the caches of a server, and prepare its statements."""
        limit = Limit(1.0, 30)
        run(tasks.post, clients, limit, server.port, case, self.book, tasks.WARM_TURN)

    def commit_rows(self, clients: int, seconds: float, meters: Collection[Meter] = ()) -> Outcome:
        """Commit single rows."""
        return run(tasks.commit_rows, clients, Limit(seconds), self.urls, meters=meters)

    def _limit(self, case: str, clients: int) -> Limit:
        if case == "hotspot":
            return Limit(_HOTSPOT_SECONDS)
        if case in {"full", "http-full", "mixed"}:
            return Limit(self.seconds, math.inf)
        most = self.book.bookings * _ADDED / clients / self.rounds
        return Limit(self.seconds, max(50, most))
