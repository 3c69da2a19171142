"""A deployment of climate: API and managers as processes, on the cloud of the tests."""

import contextlib
import io
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from blazarclient import client as blazar_client
from openstack.connection import Connection
from oslo_config.cfg import ConfigOpts

from climate.cmd import main
from climate.config import registry as config_registry
from tests.openstack import settings, traces
from tests.openstack.accounts import Account
from tests.support.clients import OpenStack
from tests.support.process import (
    Program,
    Service,
    date,
    eventually,
    free_port,
    running,
    write_config,
)
from tests.support.service import host_reservation


class Deployment:
    """One API, any number of managers, one database; options may name a proxy to Nova."""

    def __init__(
        self,
        home: Path,
        administrator: Account,
        isolation: str,
        programs: ExitStack,
        **options: object,
    ) -> None:
        self._home, self._programs = home, programs
        self.administrator, self.isolation = administrator, isolation
        self.cloud: Connection = administrator.cloud
        self.free_pool = settings.FREE_POOLS[isolation]
        self.port = free_port()
        given: dict[str, object] = {
            **settings.options(administrator, isolation),
            **settings.identity(administrator),
            "manager__poll_interval": 0.2,
            "provisioner__url": f"http://127.0.0.1:{self.port}",
            **options,
        }
        self._conf = write_config(home / "climate.conf", **given)
        self.api = self._run("climate-api", "--port", str(self.port)).says("climate is ready at")

    def _run(self, name: str, *arguments: str) -> Program:
        given = (f"--config-file={self._conf}", *arguments)
        return self._programs.enter_context(running(self._home, name, *given))

    @property
    def conf(self) -> ConfigOpts:
        made = config_registry.new()
        config_registry.load(made, "test", [f"--config-file={self._conf}"])
        return made

    def start_manager(self) -> Program:
        """Start a manager; it needs a moment until it processes events."""
        return self._run("climate-manager")

    def start_provisioner(self) -> Program:
        """Start a provisioner, and wait until it is ready."""
        return self._run("climate-provisioner").says("provisions")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def by(self, account: Account) -> Any:
        """Return python-blazarclient, logged in as a user."""
        session = account.cloud.session
        return blazar_client.Client(1, session=session, endpoint_override=self.url)

    def shell(self, account: Account, home: Path) -> OpenStack:
        """Return the ``openstack`` command, logged in as a user."""
        made = OpenStack(home, self.url)
        endpoint = ("--os-auth-type", "admin_token", "--os-endpoint", self.url)
        made.options = [*endpoint, "--os-token", account.token]
        return made

    def http(self, account: Account) -> Service:
        """Return a plain HTTP client with a user's token."""
        return Service(self.port, account.token)

    def register(self, *hosts: str, **extra: str) -> list[dict[str, Any]]:
        return [self.by(self.administrator).host.create(host, **extra) for host in hosts]

    def reserve(self, account: Account, hosts: int = 1, **fields: Any) -> dict[str, Any]:
        """Create a lease of whole hosts; ``fields`` replace the dates (now, for two hours)."""
        given = {"start": "now", "end": date(120), "name": "lease", "events": [], **fields}
        given.setdefault("reservations", [host_reservation(hosts, hosts, before_end="")])
        return dict(self.by(account).lease.create(**given))

    def start_lease(self, account: Account, *reservations: dict[str, Any]) -> dict[str, Any]:
        """Create a lease that starts now, and return it when it is ACTIVE."""
        lease = self.reserve(account, reservations=list(reservations))
        return self.until(account, lease["id"], "ACTIVE")

    def until(self, account: Account, lease_id: str, status: str) -> dict[str, Any]:
        return self.http(account).until_lease_is(lease_id, status)

    def check_status_stays(self, account: Account, lease_id: str, status: str) -> None:
        """Check that the lease gets ``status`` and keeps it for some seconds."""
        self.until(account, lease_id, status)
        time.sleep(3)
        assert self.http(account).lease(lease_id)["status"] == status

    def until_gone(self, account: Account, lease_id: str) -> None:
        """Wait until the lease does not exist."""
        http, path = self.http(account), f"/v1/leases/{lease_id}"
        eventually(lambda: http.call("GET", path).status_code == 404, f"lease {lease_id} is gone")

    def hint(self, lease: dict[str, Any]) -> str | None:
        """Return the scheduler hint that the lease's servers need, if any."""
        return lease["reservations"][0]["id"] if self.isolation == "blazar" else None

    def end_soon(self, account: Account, lease_id: str) -> None:
        self.http(account).ok("PUT", f"/v1/leases/{lease_id}", {"end_date": "now"})

    def end(self, account: Account, lease_id: str) -> dict[str, Any]:
        """End a lease now, and return it when it is TERMINATED."""
        self.end_soon(account, lease_id)
        return self.until(account, lease_id, "TERMINATED")

    def hosts_of(self, lease_id: str) -> list[str]:
        """Return the names of the lease's hosts."""
        client = self.by(self.administrator)
        names = {host["id"]: host["service_name"] for host in client.host.list()}
        found = self.http(self.administrator).ok(
            "GET", f"/v1/os-hosts/allocations?lease_id={lease_id}"
        )["allocations"]
        return sorted(names[item["resource_id"]] for item in found if item["reservations"])

    def reason(self, lease_id: str) -> str:
        """Return the last error of the lease's start."""
        query = "SELECT last_error FROM events WHERE lease_id = ? AND kind = 'start_lease'"
        [(error,)] = self.query(query, lease_id)
        return str(error)

    def audit(self, *arguments: str) -> list[str]:
        """Return the drift that the audit reports for our hosts and reservations."""
        found = self.manage("audit", *arguments)
        ours = [*settings.HOSTS, *(id_ for (id_,) in self.query("SELECT id FROM reservations"))]
        return [line for line in found if any(item in line for item in ours)]

    def manage(self, *arguments: str) -> list[str]:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            main.manage([*arguments, f"--config-file={self._conf}"])
        return output.getvalue().splitlines()

    def trusts(self) -> list[str]:
        """Return the ids of the trusts of all leases, also of those to be revoked."""
        found = [id_ for (id_,) in self.query("SELECT trust_id FROM leases") if id_]
        left = self.query("SELECT payload FROM events WHERE kind = 'revoke_trust'")
        return [*found, *(json.loads(payload)["trust_id"] for (payload,) in left)]

    def revoke(self, trust_id: str) -> None:
        self.cloud.identity.delete_trust(trust_id)

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self._home / "climate.sqlite")
        try:
            return list(connection.execute(sql, values))
        finally:
            connection.close()

    def booked_after(self, lease_id: str) -> float:
        """Return for how many seconds after the end of a lease its hosts are booked."""
        query = (
            "SELECT MAX(busy_until), end_at FROM leases JOIN reservations ON lease_id = leases.id"
            " JOIN allocations ON reservation_id = reservations.id WHERE leases.id = ?"
        )
        [(until, end)] = self.query(query, lease_id)
        return (datetime.fromisoformat(until) - datetime.fromisoformat(end)).total_seconds()

    def are_free(self, hosts: Iterable[str]) -> bool:
        """Return whether each host is in the free pool, and in no other aggregate."""
        return all(traces.holders(self.cloud, host) == [self.free_pool] for host in hosts)

    def until_free(self, hosts: Iterable[str]) -> None:
        hosts = list(hosts)
        eventually(lambda: self.are_free(hosts), f"{hosts} are free")


@contextmanager
def deployed(
    home: Path,
    administrator: Account,
    isolation: str,
    hosts: Sequence[str],
    options: Mapping[str, object],
) -> Iterator[Deployment]:
    """Deploy climate; at the end restore ``hosts`` even if the test failed."""
    cloud = administrator.cloud
    if traces.aggregates(cloud, hosts):  # left by an interrupted run
        traces.sweep(cloud, hosts)
    traces.until_empty(cloud, hosts)
    were_there = traces.aggregate_names(cloud)
    with ExitStack() as programs:
        made: Deployment | None = None

        def sweep() -> None:
            found = made.query("SELECT id FROM reservations") if made else []
            traces.sweep(cloud, hosts, {id_ for (id_,) in found}, were_there)

        programs.callback(sweep)  # after the programs
        made = Deployment(home, administrator, isolation, programs, **options)
        yield made
