"""climate against Blazar: ``python -m benchmarks.blazar [--hosts 10,100,1000]``.

Needs the testbed with Blazar, and its variables: ``OPENSTACK_BLAZAR=1 make openstack-up``, then
``OPENSTACK_BLAZAR=1 python -m benchmarks.blazar``, with the same OPENSTACK_DIR and
OPENSTACK_PORT_OFFSET if any. All servers are on the loopback. No other client may use that Blazar:
its tables must be empty, and the benchmark empties them at the end. climate is one API process and
one manager with its own database on Blazar's database server, and with the same Keystone, Nova and
memcached. Both services get the same requests of API v1, one service after the other.

Prints one JSON object a line, with the figures of both services and the ratios of climate's to
Blazar's:

``create``  Leases of one host, by one client and by ``--clients``, where each host has ten
            bookings and half of all hosts are free. The benchmark inserts hosts and bookings as
            rows, as the testbed has no thousand hypervisors. For each lease, Blazar creates a
            trust, chooses a host twice, and creates an aggregate in Nova; climate creates that at
            the start of the lease. ``double`` counts double bookings.
``race``    ``--racers`` clients request the only (real) host for the same window at the same
            time, ``--rounds`` times. One request can succeed.
``late``    The time from the start of a lease until it is active and has its (real) host:
            ``--starts`` times, both services at the same minutes.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.blazar import bookings
from benchmarks.blazar.bookings import Book, Slots
from benchmarks.blazar.peers import Peer, both, create, database_url
from benchmarks.clients import Limit, Outcome, run
from benchmarks.options import numbers, some_of
from climate.core.window import Window
from tests.openstack.accounts import Account, temporary_project
from tests.openstack.testbed import settings

CASES = ("create", "race", "late")
# Unmeasured requests of each client at its start, which fill caches.
_WARM = 2
# From the creation of a lease of the case late to its start, and its length.
_AHEAD = timedelta(seconds=20)
_LENGTH = timedelta(minutes=30)

Figures = dict[str, Any]


def create_case(peers: Sequence[Peer], hosts: int, given: argparse.Namespace) -> Iterator[Figures]:
    """Measure the creation of leases in one book, by one client and by several."""
    book, asked = bookings.book(hosts), 0
    try:
        for peer in peers:
            peer.store.fill(book)
        for clients in sorted({1, given.clients}):
            limit = Limit(given.seconds, max(1, given.creates // clients))
            slots = Slots(book, asked, clients)
            found = {peer.name: _created(peer, slots, limit) for peer in peers}
            asked += clients * (_WARM + int(limit.requests))
            yield {
                "case": "create",
                "hosts": hosts,
                "bookings": book.bookings,
                "clients": clients,
                **found,
                **_ratios(found, "per_second", "p50_ms", "p99_ms"),
            }
    finally:
        for peer in peers:
            peer.clear()


def _created(peer: Peer, slots: Slots, limit: Limit) -> Figures:
    arguments = (peer.port, peer.member.token)
    before = peer.store.count_double()
    run(create, slots.clients, Limit(limit.seconds, _WARM), *arguments, slots)
    rest = Slots(slots.book, slots.first + _WARM * slots.clients, slots.clients)
    outcome = run(create, slots.clients, limit, *arguments, rest)
    return {
        "n": len(outcome.seconds),
        "per_second": round(outcome.per_second, 3),
        "p50_ms": round(outcome.at(0.5), 1),
        "p99_ms": round(outcome.at(0.99), 1),
        "refused": outcome.refused,
        "double": peer.store.count_double() - before,
    }


def race_case(peers: Sequence[Peer], given: argparse.Namespace) -> Figures:
    """Count the requests that succeed when all clients request the only host at once."""
    book = bookings.book(1)
    found = {}
    for peer in peers:
        slots = [Slots(book, number, given.racers, same=True) for number in range(given.rounds)]
        outcomes = [_raced(peer, one, given.seconds) for one in slots]
        found[peer.name] = {
            "granted": [outcome.admitted for outcome in outcomes],
            "double": peer.store.count_double(),
        }
    return {"case": "race", "clients": given.racers, **found}


def _raced(peer: Peer, slots: Slots, seconds: float) -> Outcome:
    arguments = (peer.port, peer.member.token)
    return run(create, slots.clients, Limit(seconds, 1), *arguments, slots)


def late_case(peers: Sequence[Peer], given: argparse.Namespace) -> Figures:
    """Measure the lateness of starts."""
    late: dict[str, list[float]] = {peer.name: [] for peer in peers}
    for number in range(given.starts):
        start = (datetime.now(UTC) + _AHEAD).replace(second=0, microsecond=0)
        start += timedelta(minutes=1)
        window = Window(start, start + _LENGTH)
        with ThreadPoolExecutor() as pool:
            running = [pool.submit(peer.lateness, window, f"late-{number}") for peer in peers]
            for peer, one in zip(peers, running, strict=True):
                late[peer.name].append(one.result() * 1000)
    found = {
        name: {
            "n": len(times),
            "p50_ms": round(statistics.median(times), 1),
            "max_ms": round(max(times), 1),
        }
        for name, times in late.items()
    }
    return {"case": "late", **found, **_ratios(found, "p50_ms", "max_ms")}


def _ratios(found: dict[str, Figures], *names: str) -> Figures:
    ours, theirs = found["climate"], found["blazar"]
    return {f"ratio_{name}": float(f"{ours[name] / theirs[name]:.3g}") for name in names}


def main() -> None:
    """Run the cases of the command line, and print their figures."""
    given = _parser().parse_args()
    if any(_requests(given) > Book(hosts, datetime.now(UTC)).room for hosts in given.hosts):
        raise SystemExit("so many leases have no room on so few hosts: fewer --creates")
    url = database_url()
    administrator = Account(settings.credentials(), "admin")
    hosts = {"climate": given.climate_host, "blazar": given.blazar_host}
    with (
        temporary_project(administrator, "versus") as project,
        both(url, administrator, project, hosts) as peers,
    ):
        for figures in _cases(peers, given):
            print(json.dumps(figures), flush=True)


def _cases(peers: Sequence[Peer], given: argparse.Namespace) -> Iterator[Figures]:
    if "create" in given.cases:
        for hosts in given.hosts:
            yield from create_case(peers, hosts, given)
    real: dict[str, Callable[[Sequence[Peer], argparse.Namespace], Figures]]
    real = {"race": race_case, "late": late_case}
    for case, measure in real.items():
        if case in given.cases:
            with ExitStack() as registered:
                for peer in peers:
                    registered.enter_context(peer.registered())
                yield measure(peers, given)


def _requests(given: argparse.Namespace) -> int:
    return int(2 * given.creates + _WARM * (1 + given.clients))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "benchmarks.blazar",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cases", type=some_of(CASES), default=CASES, help=f"of {','.join(CASES)}")
    parser.add_argument("--hosts", type=numbers, default=[10, 100, 1000], help="create: how many")
    parser.add_argument("--creates", type=int, default=100, help="create: leases at most")
    parser.add_argument("--seconds", type=float, default=60.0, help="create: for each at most")
    parser.add_argument("--clients", type=int, default=4, help="create: besides one alone")
    parser.add_argument("--racers", type=int, default=10, help="race: clients at once")
    parser.add_argument("--rounds", type=int, default=5, help="race: how often")
    parser.add_argument("--starts", type=int, default=3, help="late: leases, each takes a minute")
    parser.add_argument("--climate-host", default="fake09", help="a real one for climate")
    parser.add_argument("--blazar-host", default="fake10", help="a real one for Blazar")
    return parser


if __name__ == "__main__":
    main()
