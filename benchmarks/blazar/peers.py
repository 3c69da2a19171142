"""climate and Blazar on the testbed's cloud: start them, load them, send requests, clean up."""

import http.client
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from openstack.connection import Connection

from benchmarks.blazar.bookings import Slots, Store, blazar_store, climate_store
from benchmarks.clients import Outcome
from benchmarks.databases.scratch import scratch
from climate.core.lease.model import HOST
from climate.core.window import Window
from tests.openstack import settings as options
from tests.openstack import traces
from tests.openstack.accounts import Account, Project
from tests.openstack.testbed import daemons, layout, servers
from tests.support.process import free_port, running, write_config

_TIMEOUT = 120.0
_PAUSE = 0.1
_ISOLATION = "tenancy"  # its pool of free hosts differs from Blazar's
# Seconds, longer than any run: both services would mark the benchmark's hosts as failed, because
# the cloud does not have them.
_NEVER = 86_400
# Seconds until the manager has made its first check.
_FIRST_LOOK = 5.0


@dataclass(frozen=True)
class Peer:
    """A running service: its URL, its database, its real host, and the account of requests."""

    name: str
    port: int
    store: Store
    host: str
    member: Account
    administrator: Account

    @property
    def cloud(self) -> Connection:
        """The connection of the cloud's administrator."""
        return self.administrator.cloud

    def ask(self, method: str, path: str, body: object = None, *, by: Account) -> Any:  # noqa: ANN401
        """Send a request and return the JSON of its answer, None if it has no body.

        Raises AssertionError with the answer if it is a refusal.
        """
        with closing(_connect(self.port)) as connection:
            status, text = _send(connection, by.token, method, path, body)
        assert status < 400, f"{self.name}: {method} {path}: {status} {text}"
        return json.loads(text) if text else None

    def clear(self, *, hosts: bool = True) -> None:
        """Remove all leases, their aggregates and, by default, the hosts."""
        made = self.store.clear(hosts=hosts)
        for found in self.cloud.compute.aggregates():
            if found.name in made:
                for host in found.hosts or ():
                    self.cloud.compute.remove_host_from_aggregate(found, host)
                self.cloud.compute.delete_aggregate(found)

    @contextmanager
    def registered(self) -> Iterator[None]:
        """Make the real host reservable during the block."""
        body = {"name": self.host}
        host = self.ask("POST", "/v1/os-hosts", body, by=self.administrator)["host"]
        try:
            yield
        finally:
            self.clear(hosts=False)
            self.ask("DELETE", f"/v1/os-hosts/{host['id']}", by=self.administrator)

    def lateness(self, window: Window, name: str) -> float:
        """Create a lease, wait until it is active, and end it; return the lateness in seconds.

        Raises AssertionError if that takes longer than a minute.
        """
        made = self.ask("POST", "/v1/leases", lease_body(name, window), by=self.member)
        path = f"/v1/leases/{made['lease']['id']}"
        while self.ask("GET", path, by=self.member)["lease"]["status"] != "ACTIVE":
            late = (datetime.now(UTC) - window.start).total_seconds()
            assert late < 60, f"{self.name}: the lease does not start"
            time.sleep(_PAUSE)
        late = (datetime.now(UTC) - window.start).total_seconds()
        self.ask("DELETE", path, by=self.member)
        return late


def lease_body(name: str, window: Window) -> dict[str, Any]:
    """Return a request for one host, in Blazar's v1 API."""
    start, end = (moment.strftime("%Y-%m-%d %H:%M") for moment in (window.start, window.end))
    wanted = {"min": 1, "max": 1, "hypervisor_properties": "", "resource_properties": ""}
    reservation = {"resource_type": HOST, "before_end": "default", **wanted}
    return {
        "name": name,
        "start_date": start,
        "end_date": end,
        "reservations": [reservation],
        "events": [],
    }


def create(number: int, port: int, token: str, slots: Slots) -> Iterator[Outcome]:
    """Create leases over one connection; a task for ``benchmarks.clients``."""
    connection, outcome = _connect(port), Outcome()
    yield outcome
    for position, window in enumerate(slots.of(number)):
        body = lease_body(f"{slots.first}-{number}-{position}", window)
        status, _ = _send(connection, token, "POST", "/v1/leases", body)
        outcome.admitted += status == 201
        outcome.refused += status != 201
        yield outcome


def _connect(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT)


def _send(
    connection: http.client.HTTPConnection, token: str, method: str, path: str, body: object
) -> tuple[int, str]:
    headers = {"X-Auth-Token": token, "Accept": "application/json"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    connection.request(method, path, json.dumps(body) if body is not None else None, headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def database_url() -> str:
    """Return the URL of Blazar's database; raises SystemExit if the testbed has no Blazar."""
    mariadb = servers.find_mariadb()
    if not (mariadb and layout.WITH_BLAZAR and daemons.answers(layout.PORTS["blazar-api"])):
        raise SystemExit("there is no Blazar: export OPENSTACK_BLAZAR=1 and make openstack-up")
    return mariadb.url(f"{layout.PREFIX}_blazar")


@contextmanager
def both(
    url: str, administrator: Account, project: Project, hosts: Mapping[str, str]
) -> Iterator[list[Peer]]:
    """Run climate beside the testbed's Blazar; ``hosts`` names a real host for each service.

    ``url`` is of Blazar's database. Raises SystemExit if that has anything in it.
    """
    with ExitStack() as made:

        def peer(name: str, port: int, store: Store) -> Peer:
            found = Peer(name, port, store, hosts[name], project.member, administrator)
            made.callback(found.clear)
            return found

        store = made.enter_context(blazar_store(url))
        if not store.is_empty():
            raise SystemExit("Blazar has hosts or leases: remove them, for this will remove all")
        made.enter_context(_swept(administrator, set(hosts.values())))
        blazar = peer("blazar", layout.PORTS["blazar-api"], store)
        database = made.enter_context(scratch(url))
        port = made.enter_context(_climate(administrator, database.engine.url))
        yield [peer("climate", port, climate_store(database)), blazar]


@contextmanager
def _climate(administrator: Account, url: sa.URL) -> Iterator[int]:
    """Run an API process and a manager process; yield the API's port."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as programs:
        given = {
            **options.options(administrator, _ISOLATION),
            **options.identity(administrator),
            "database__connection": url.render_as_string(hide_password=False),
            "keystone_authtoken__memcached_servers": f"127.0.0.1:{layout.PORTS['memcached']}",
            "manager__sync_interval": _NEVER,
            "limits__project_leases": -1,
        }
        conf = write_config(Path(folder) / "climate.conf", **given)
        for name, says, arguments in (
            ("climate-api", "climate is ready at", ["--port", str(port)]),
            ("climate-manager", "climate-manager is at work", []),
        ):
            program = running(Path(folder), name, f"--config-file={conf}", *arguments)
            programs.enter_context(program).says(says)
        time.sleep(_FIRST_LOOK)
        yield port


@contextmanager
def _swept(administrator: Account, hosts: set[str]) -> Iterator[None]:
    """Restore ``hosts`` and trusts of the cloud at the end of the block."""
    cloud = administrator.cloud
    pools, trusts = traces.aggregate_names(cloud), _trusts(cloud)
    try:
        yield
    finally:
        traces.sweep(cloud, hosts, were_there=pools)
        for trust_id in _trusts(cloud) - trusts:
            cloud.identity.delete(f"/OS-TRUST/trusts/{trust_id}")


def _trusts(cloud: Connection) -> set[str]:
    """Return the administrator's trusts; Blazar creates one for each request."""
    user_id = cloud.session.get_user_id()
    answer = cloud.identity.get("/OS-TRUST/trusts", params={"trustor_user_id": user_id}).json()
    return {trust["id"] for trust in answer["trusts"]}
