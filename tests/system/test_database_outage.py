"""During a database outage the service reports it; afterwards it continues without loss."""

import threading
from collections.abc import Callable, Iterator, Sized
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support import servers
from tests.support.process import (
    Program,
    Service,
    date,
    effects,
    eventually,
    free_port,
    reserve,
    running,
    write_config,
)
from tests.support.proxy import Proxy
from tests.support.service import host_reservation

Start = Callable[..., Program]
NIGHTLY = pytest.mark.nightly(reason="PostgreSQL shows the same; both use one code path")


@pytest.fixture(params=["postgresql", pytest.param("mariadb", marks=NIGHTLY)])
def server_url(request: pytest.FixtureRequest) -> sa.URL:
    """Return the URL of an empty, migrated database on a server."""
    servers.need(request.param)
    return sa.make_url(servers.clean(request.param))


@pytest.fixture
def proxy(server_url: sa.URL) -> Iterator[Proxy]:
    """Return the proxy through which the service reaches its database."""
    with Proxy(server_url.host or "127.0.0.1", server_url.port or 0) as made:
        yield made


@pytest.fixture
def start(server_url: sa.URL, proxy: Proxy, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts programs behind the proxy; options as in write_config."""
    url = server_url.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
    conf = tmp_path / "climate.conf"
    with ExitStack() as stack:

        def run(name: str, *arguments: str, **options: object) -> Program:
            write_config(
                conf,
                database__connection=url,
                simulated__journal=tmp_path / "cloud",
                manager__poll_interval=0.1,
                manager__claim_timeout=2,
                **options,
            )
            given = (f"--config-file={conf}", *arguments)
            return stack.enter_context(running(tmp_path, name, *given))

        yield run


@pytest.fixture
def api(start: Start) -> Service:
    service = Service(free_port())
    start("climate-api", "--port", str(service.port)).says("climate is ready at")
    for number in (1, 2):
        service.ok("POST", "/v1/os-hosts", {"name": f"sim-{number}"})
    return service


def body(minutes: float) -> dict[str, Any]:
    """Return a request for one host from ``minutes`` to an hour later."""
    dates = {"start_date": date(minutes), "end_date": date(minutes + 60)}
    return {"name": "lease", **dates, "reservations": [host_reservation()]}


def test_the_service_reports_the_outage_and_recovers(
    start: Start, api: Service, proxy: Proxy
) -> None:
    start("climate-manager").says("climate-manager is at work")
    active = reserve(api)
    api.until_lease_is(active, "ACTIVE")
    proxy.cut()
    for method, path, sent in [
        ("GET", "/v1/leases", None),
        ("GET", f"/v1/leases/{active}", None),
        ("POST", "/v1/leases", body(10)),
        ("PUT", f"/v1/leases/{active}", {"name": "renamed"}),
        ("DELETE", f"/v1/leases/{active}", None),
        ("GET", "/v1/os-hosts", None),
    ]:
        answer = api.call(method, path, sent)
        assert answer.status_code == 503, (method, path)
        assert "database does not answer" in answer.json()["error_message"]
        assert int(answer.headers["Retry-After"]) > 0
    problem = api.call("GET", "/v2/notifications")
    assert (problem.status_code, problem.json()["code"]) == (503, "backend_unavailable")
    ready = api.call("GET", "/readyz")
    assert ready.status_code == 503
    assert "does not answer" in ready.json()["checks"]["database"]
    assert api.ok("GET", "/healthz") == {"status": "ok"}
    proxy.mend()
    assert api.lease(active)["status"] == "ACTIVE"
    assert api.ok("GET", "/readyz")["status"] == "ready"
    api.until_lease_is(reserve(api), "ACTIVE")  # the manager is back, too


def exceeds(items: Sized, number: int) -> bool:
    return len(items) > number


def is_told(api: Service, lease_id: str) -> bool:
    return "lease.create" in api.event_types(lease_id)


def test_no_acknowledged_lease_is_lost(start: Start, api: Service, proxy: Proxy) -> None:
    start("climate-manager").says("climate-manager is at work")
    acknowledged: list[str] = []
    refused: list[int] = []
    enough = threading.Event()

    def book() -> None:
        minutes = 10
        while not enough.is_set():
            answer = api.call("POST", "/v1/leases", body(minutes))
            minutes += 60
            if answer.status_code == 201:
                acknowledged.append(answer.json()["lease"]["id"])
            else:
                refused.append(answer.status_code)

    booking = threading.Thread(target=book)
    booking.start()
    try:
        for _ in range(3):
            eventually(partial(exceeds, acknowledged, len(acknowledged) + 5), "leases are made")
            proxy.cut()
            eventually(partial(exceeds, refused, len(refused)), "a request fails")
            proxy.mend()
    finally:
        enough.set()
        booking.join()
    assert set(refused) == {503}
    present = {lease["id"] for lease in api.ok("GET", "/v1/leases")["leases"]}
    assert set(acknowledged) <= present
    for lease_id in acknowledged[:3] + acknowledged[-3:]:
        eventually(partial(is_told, api, lease_id), "it is told")


def test_a_start_that_finishes_during_the_outage_takes_effect_once(
    start: Start, api: Service, proxy: Proxy, tmp_path: Path
) -> None:
    manager = start("climate-manager", simulated__delay=0.5)
    lease_id = reserve(api)
    api.until_lease_is(lease_id, "STARTING")
    proxy.cut()
    manager.says(
        "managers repeat them when their claims expire"
    )  # it could not say that the host is handed over
    proxy.mend()
    api.until_lease_is(lease_id, "ACTIVE")
    assert effects(tmp_path / "cloud") == {"ensure_pool": 1, "add_host": 1}


def test_a_manager_can_be_stopped_during_the_outage(
    start: Start, api: Service, proxy: Proxy
) -> None:
    manager = start("climate-manager", "--debug")
    manager.says("climate-manager is at work")
    api.until_lease_is(reserve(api), "ACTIVE")
    proxy.cut()
    assert manager.stop(within=30) == 0
    assert api.call("GET", "/readyz").status_code == 503
