"""The tasks of clients: commit rows, create leases directly, create leases over HTTP."""

import http.client
import itertools
import json
import logging
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import sqlalchemy as sa

from benchmarks.calendar.book import UNIT, Calendar
from benchmarks.clients import Outcome
from climate.cmd import bootstrap
from climate.config import registry as config_registry
from climate.core.errors import Contention, NotEnoughResources
from climate.core.lease.model import HOST
from climate.core.window import Window
from climate.db.engine.database import Database
from climate.manager.admission.requirements import ReservationRequest
from climate.manager.leases.create import LeaseRequest, Owner, create_lease
from climate.manager.process.runtime import Runtime

INSTANCE = "virtual:instance"
ROWS = sa.Table(
    "benchmark_rows",
    sa.MetaData(),
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("name", sa.String(80)),
    sa.Column("made_at", sa.String(32)),
)
# What the clients of this process share, by the URL of the database.
_PROCESS: dict[str, tuple[Runtime, Counter[int]]] = {}
_STARTING = threading.Lock()
_GPU = '["=", "$gpu", "yes"]'
_HOT = '["=", "$hot", "yes"]'


def make_conf(url: str) -> Any:  # noqa: ANN401 - oslo.config is untyped
    """Return a configuration with the simulated cloud and this database."""
    conf = config_registry.new()
    config_registry.load(conf, "benchmarks", [])
    logging.getLogger("climate").setLevel(logging.ERROR)
    conf.set_override("connection", url, group="database")
    plugins = ["physical.host.plugin", "virtual.instance.plugin"]
    conf.set_override("plugins", plugins, group="manager")
    # One project has all leases of the calendar, a hundred times as many as the limit permits.
    conf.set_override("project_leases", -1, group="limits")
    return conf


def make_runtime(url: str) -> Runtime:
    """Return the runtime of an API process."""
    return bootstrap.make_runtime(make_conf(url))


def process_of(url: str) -> tuple[Runtime, Counter[int]]:
    """Return the runtime of this process, and how many transactions each thread repeated.

    The clients of a process share its runtime. Its calendar is loaded.
    """
    with _STARTING:
        if url not in _PROCESS:
            runtime = make_runtime(url)
            fill_memory(runtime)
            _PROCESS[url] = runtime, _count_conflicts(runtime.database)
        return _PROCESS[url]


def fill_memory(runtime: Runtime) -> None:
    """Load the calendar in memory, as a process does in the background with its first requests."""
    memory = getattr(runtime, "calendar", None)  # a previous release has none
    if memory is not None and memory._pays():  # noqa: SLF001 - each release decides itself
        memory.load()


def commit_rows(number: int, urls: Sequence[str]) -> Iterator[Outcome]:
    """Commit one durable row at a time, the minimum of any write."""
    database = Database(urls[number % len(urls)])
    insert = ROWS.insert()
    made_at = datetime.now(UTC).isoformat()
    # SQLite: climate's engine begins a transaction even with autocommit.
    is_sqlite = database.dialect == "sqlite"
    options = {"climate_write": True} if is_sqlite else {"isolation_level": "AUTOCOMMIT"}
    with database.engine.execution_options(**options).connect() as connection:
        outcome = Outcome()
        yield outcome
        while True:
            connection.execute(insert, _row("raw", made_at))
            if is_sqlite:
                connection.commit()
            yield outcome


def _row(name: str, made_at: str) -> dict[str, str]:
    return {"id": str(uuid.uuid4()), "name": name, "made_at": made_at}


# Unmeasured requests of each client at its start.
_WARM = {"spread": 20, "names": 20, "instance": 20, "hotspot": 5, "full": 5, "mixed": 20}
# Requests per second of all clients in the case mixed, and the share of them that is refused.
_MIXED_RATE, _MIXED_REFUSED = 1_050, 1_000 / 1_050
WARM_TURN = -1

Wish = tuple[Window, str, dict[str, Any]]


def wishes(case: str, book: Calendar, turn: int, number: int) -> Iterator[Wish]:
    """Yield the window, resource type and params of each request of client ``number``.

    The requests are the same whenever the calendar and these arguments are. Each turn of the case
    hotspot has its own window.
    """
    dice = random.Random(turn * 1_000 + number)
    for count in itertools.count():
        if case == "names":
            named = f'["!=", "$gpu", "{turn}-{number}-{count}"]'
            yield book.random_window(dice), HOST, _params(1, 1, named)
        elif case == "hotspot":
            yield book.hot_window(turn), HOST, _params(1, 1, _HOT)
        elif case in {"full", "http-full"} or (case == "mixed" and dice.random() < _MIXED_REFUSED):
            yield book.full_window, HOST, _params(1, 1, "")
        else:
            least, most = sorted(dice.choices([1, 2, 3], k=2))
            wanted = dice.choice(["", _GPU])
            window = book.random_window(dice)
            if case == "instance":
                yield window, INSTANCE, _instances(most, wanted)
            else:
                yield window, HOST, _params(least, most, wanted)


def _params(least: int, most: int, wanted: str) -> dict[str, Any]:
    return {
        "min": least,
        "max": most,
        "hypervisor_properties": "",
        "resource_properties": wanted,
        "before_end": "default",
    }


def _instances(amount: int, wanted: str) -> dict[str, Any]:
    sizes = dict(zip(("vcpus", "memory_mb", "disk_gb"), UNIT.values(), strict=True))
    return {"amount": amount, **sizes, "affinity": None, "resource_properties": wanted}


def ask(
    number: int, urls: Sequence[str], case: str, book: Calendar, turn: int, clients: int
) -> Iterator[Outcome]:
    """Create leases with the use case itself.

    In the case mixed, requests arrive at random times at a fixed rate, whether or not the client is
    ready. In the other cases, each request follows the one before.
    """
    runtime, conflicts = process_of(urls[number % len(urls)])
    # The warm-up must not book the hosts of the case hotspot.
    warm = wishes("spread" if case == "hotspot" else case, book, WARM_TURN, number)
    for wish in islice(warm, _WARM[case]):  # warm-up: caches and query plans
        _ask(runtime, wish, Outcome())
    outcome = Outcome()
    yield outcome
    thread = threading.get_ident()
    before, dice, arrival = conflicts[thread], random.Random(number), time.perf_counter()
    for wish in wishes(case, book, turn, number):
        if case == "mixed":
            now = time.perf_counter()
            arrival += dice.expovariate(_MIXED_RATE / clients)
            outcome.idle = arrival - now
            time.sleep(max(0.0, outcome.idle))
        _ask(runtime, wish, outcome)
        outcome.retries = conflicts[thread] - before
        outcome.finished = case == "hotspot" and outcome.refused > 0
        yield outcome


def _ask(runtime: Runtime, wish: Wish, outcome: Outcome) -> None:
    window, kind, params = wish
    request = LeaseRequest(
        name="lease",
        start=window.start,
        end=window.end,
        reservations=(ReservationRequest(resource_type=kind, params=params),),
    )
    try:
        create_lease(runtime, Owner(user_id="user", project_id="project"), request)
        outcome.admitted += 1
    except NotEnoughResources:
        outcome.refused += 1
    except Contention:
        outcome.gave_up += 1


def _count_conflicts(database: Database) -> Counter[int]:
    """Return the number of transactions that each thread repeats from now on."""
    report, threads = database.on_conflict, Counter[int]()

    def count(reason: str) -> None:
        threads[threading.get_ident()] += 1
        report(reason)

    database.on_conflict = count
    return threads


def post(number: int, port: int, case: str, book: Calendar, turn: int) -> Iterator[Outcome]:
    """Post requests for leases to a server on this machine, over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    outcome = Outcome()
    yield outcome
    for window, _, params in wishes(case, book, turn, number):
        start, end = (moment.strftime("%Y-%m-%d %H:%M") for moment in (window.start, window.end))
        reservation = {"resource_type": HOST, **params}
        body = {
            "name": "lease",
            "start_date": start,
            "end_date": end,
            "reservations": [reservation],
        }
        headers = {"Content-Type": "application/json", "X-Auth-Token": "user:project"}
        connection.request("POST", "/v1/leases", json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status in {201, 409}, content
        outcome.admitted += answer.status == 201
        outcome.refused += answer.status == 409
        yield outcome
