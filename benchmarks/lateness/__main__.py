"""How late do leases start? ``python -m benchmarks.lateness [CASE ...] [--database URL]``.

Prints one JSON object a line for each case, all in one run, one after the other:

- ``idle``: one manager as shipped (timer, hints, poll as a net), leases spread over ``--seconds``;
- ``burst``: three managers, all starts due in the same second;
- ``drain``: two managers, all starts overdue; how long until all are finished;
- ``floor``: the same rows with two processes without climate's logic: they claim due events in one
  transaction, and store them as done, with a notification, in another;
- ``kill``: as ``drain`` with three managers and claims of two seconds; one manager is killed;
- ``behind``: as ``drain``, two minutes overdue, while a lease of another project starts each
  second; how late are those?
- ``poll``: as ``idle``, with a manager that only polls every 10 s.

Lateness is the time from the due time to the call of the plug-in's start, in milliseconds. The
plug-in only records it; in ``kill`` it checks first whether the lease was started, as plug-ins do.
``ratio_to_floor`` of a ``drain`` is its events per event of the following ``floor``. ``twice`` is
the number of events with more than one attempt, ``effects_twice`` the number of leases that were
handed over twice.

The database must have no tables of climate, or empty tables. By default it is a temporary SQLite
file.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.lateness import cases, managers
from benchmarks.lateness.bench import Bench


def main() -> None:
    """Measure the cases and print them."""
    parser = argparse.ArgumentParser("benchmarks.lateness", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", default=[], help="all by default")
    parser.add_argument("--database", metavar="URL", help="an empty database of any kind")
    parser.add_argument("--leases", type=int, default=100, help="leases of idle and poll")
    parser.add_argument("--seconds", type=float, default=30.0, help="over which they start")
    parser.add_argument("--burst", type=int, default=1000, help="starts in the same second")
    parser.add_argument("--drain", type=int, default=5000, help="starts that are overdue")
    given = parser.parse_args()
    known: dict[str, Callable[[Bench], dict[str, Any]]] = {
        "idle": lambda bench: cases.spread(bench, managers.as_shipped, given.leases, given.seconds),
        "burst": lambda bench: cases.burst(bench, given.burst),
        "drain": lambda bench: cases.drain(bench, given.drain, 2),
        "floor": lambda bench: cases.drain(bench, given.drain, 2, managers.barely),
        "kill": lambda bench: cases.drain(bench, given.drain, 3, kill=True),
        "behind": lambda bench: cases.behind(bench, given.drain),
        "poll": lambda bench: cases.spread(bench, managers.by_polling, given.leases, given.seconds),
    }
    rates: dict[str, float] = {}
    for case in given.cases or known:
        with tempfile.TemporaryDirectory() as folder:
            url = given.database or f"sqlite:///{Path(folder) / 'lateness.sqlite'}"
            with Bench.at(url, Path(folder)) as bench:
                dialect = bench.runtime.database.dialect
                found = {"case": case, "database": dialect, **known[case](bench)}
            rates[case] = found.get("events_per_second", 0.0)
            if case == "floor" and "drain" in rates:
                found["ratio_to_floor"] = round(rates["drain"] / rates["floor"], 2)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
