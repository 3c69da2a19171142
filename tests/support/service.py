"""A whole service without threads: HTTP with Flask's client, and a manual clock."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from flask.testing import FlaskClient
from oslo_config.cfg import ConfigOpts
from werkzeug.test import TestResponse

from climate.api.errors.catalogue import CODES
from climate.cmd import bootstrap
from climate.core.lease.model import HOST
from climate.db.events.ordering import OPEN
from climate.db.tables.leases import EVENTS
from climate.manager.events.dispatcher import Dispatcher
from climate.manager.notifications.relay import Relay
from climate.manager.process.runtime import Runtime
from climate.notifications.emit import LogEmitter
from climate.plugins.hosts.plugin import HostPlugin
from climate.plugins.hosts.simulated import SimulatedCloud
from tests.support import compilations, prepared
from tests.support.clock import ManualClock

FORMAT = "%Y-%m-%d %H:%M"

compilations.share_url_rules()
compilations.share_policy_rules()
compilations.share_compiled_sql()


@dataclass
class Story:
    """A service on ``clock``; ``run`` runs all due events, ``at`` moves the clock first."""

    conf: ConfigOpts
    runtime: Runtime
    clock: ManualClock
    http: FlaskClient = field(init=False)
    dispatcher: Dispatcher = field(init=False)
    relay: Relay = field(init=False)

    def __post_init__(self) -> None:
        self.dispatcher = Dispatcher(self.runtime, "manager-1")
        self.relay = Relay(self.runtime, LogEmitter(), "manager-1")
        self.http = bootstrap.make_api(self.conf, self.runtime).test_client()

    @property
    def cloud(self) -> SimulatedCloud:
        """The simulated cloud behind the host plugin."""
        plugin = self.runtime.plugins[HOST]
        assert isinstance(plugin, HostPlugin)
        assert isinstance(plugin.cloud, SimulatedCloud)
        return plugin.cloud

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> TestResponse:
        """Send a request, as an admin unless ``token`` (user:project[:roles]) says otherwise."""
        sent = {**({"X-Auth-Token": token} if token else {}), **(headers or {})}
        return self.http.open(path, method=method, json=body, headers=sent)

    def ok(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> Any:
        """Send a request that must succeed, and return the JSON of the answer."""
        response = self.call(method, path, body, token=token)
        assert response.status_code < 400, response.get_data(as_text=True)
        return response.get_json()

    def refused(
        self, status: int, method: str, path: str, body: Any = None, *, token: str | None = None
    ) -> str:
        """Send a request that must fail with ``status``; return the message."""
        response = self.call(method, path, body, token=token)
        text = response.get_data(as_text=True)
        assert response.status_code == status, f"{response.status_code} {text}"
        return str(response.get_json()["error_message"])

    def problem(
        self,
        status: int,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Send a request to v2 that must fail with ``status``; return the problem."""
        response = self.call(method, path, body, token=token, headers=headers)
        return problem(response, status)

    def register(self, count: int, **extra: str) -> None:
        """Make hosts sim-1 .. sim-``count`` reservable."""

        def register() -> None:
            for number in range(1, count + 1):
                self.ok("POST", "/v1/os-hosts", {"name": f"sim-{number}", **extra})

        prepared.once(self, (count, *sorted(extra.items())), register)

    def date(self, minutes: float = 0) -> str:
        """Return the v1 date that is ``minutes`` from now."""
        return (self.clock.now() + timedelta(minutes=minutes)).strftime(FORMAT)

    def lease_body(self, start: float = 60, end: float = 120, **fields: Any) -> dict[str, Any]:
        """Return a request for one host from ``start`` to ``end`` minutes from now."""
        return {
            "name": "lease",
            "start_date": self.date(start),
            "end_date": self.date(end),
            "reservations": [host_reservation()],
            "events": [],
            **fields,
        }

    def moment(self, minutes: float = 0) -> str:
        """Return the v2 time that is ``minutes`` from now."""
        return f"{(self.clock.now() + timedelta(minutes=minutes)):%Y-%m-%dT%H:%M:%SZ}"

    def asking(self, first: float = 60, last: float = 120, **fields: Any) -> dict[str, Any]:
        """Return a request to v2 for one host from ``first`` to ``last`` minutes from now."""
        return {
            "name": "lease",
            "start": self.moment(first),
            "end": self.moment(last),
            "reservations": [hosts()],
            **fields,
        }

    def reserve(self, start: float = 60, end: float = 120, **fields: Any) -> dict[str, Any]:
        return dict(self.ok("POST", "/v1/leases", self.lease_body(start, end, **fields))["lease"])

    def lease(self, lease_id: str) -> dict[str, Any]:
        return dict(self.ok("GET", f"/v1/leases/{lease_id}")["lease"])

    def hosts_of(self, lease_id: str) -> list[str]:
        """Return the ids of the hosts that the lease has or will have."""
        found = self.ok("GET", f"/v1/os-hosts/allocations?lease_id={lease_id}")["allocations"]
        return [host["resource_id"] for host in found if host["reservations"]]

    def run(self) -> int:
        """Run all events that are due now; return how many."""
        return self.dispatcher.run_due()

    def at(self, minutes: float) -> int:
        """Move the clock by ``minutes`` and run all events that are due then."""
        self.clock.advance(minutes * 60)
        return self.run()

    def until(self, moment: datetime, step: float = 60) -> None:
        """Move the clock to ``moment`` in steps of ``step`` seconds; run due events at each.

        Steps at which no event is due are taken together.
        """
        while self.clock.now() < moment:
            left = (moment - self.clock.now()).total_seconds()
            self.clock.advance(min(step * self._idle_steps(step), left))
            self.run()

    def _idle_steps(self, step: float) -> float:
        """Return the number of steps of ``step`` seconds to the first one with a due event."""
        query = sa.select(sa.func.min(EVENTS.c.run_at)).where(EVENTS.c.status.in_(OPEN))
        with self.runtime.database.read() as session:
            due = session.scalar(query)
        if due is None:
            return math.inf
        seconds: float = (due - self.clock.now()).total_seconds()
        return max(1, math.ceil(seconds / step))

    def published(self, lease_id: str | None = None) -> list[dict[str, Any]]:
        """Publish the outbox and return all notifications (of one lease)."""
        self.relay.flush()
        log = self.ok("GET", "/v2/notifications?limit=1000")["notifications"]
        return [item for item in log if lease_id in {None, item["lease_id"]}]

    def event_types(self, lease_id: str) -> list[str]:
        """Return the types of the notifications about a lease, in order."""
        return [item["event_type"] for item in self.published(lease_id)]

    def close(self) -> None:
        self.runtime.close()


def problem(response: TestResponse, status: int) -> dict[str, Any]:
    """Check that an answer is an RFC 9457 problem with ``status``; return it."""
    assert response.status_code == status, response.get_data(as_text=True)
    assert response.mimetype == "application/problem+json"
    found: dict[str, Any] = response.get_json()
    assert found["type"].endswith(f"/v2/errors/{found['code']}")
    assert found["title"] == CODES[found["code"]].title
    assert found["status"] == status
    assert found["detail"]
    assert found["code"] == response.headers["Climate-Error-Code"]
    return found


def hosts(minimum: Any = 1, maximum: Any = 1, **params: Any) -> dict[str, Any]:
    """Return a request to v2 for whole hosts."""
    return {
        "resource_type": HOST,
        "params": {"min": minimum, "max": maximum, **params},
    }


def host_reservation(minimum: Any = 1, maximum: Any = 1, **fields: Any) -> dict[str, Any]:
    return {
        "resource_type": HOST,
        "min": minimum,
        "max": maximum,
        "hypervisor_properties": "",
        "resource_properties": "",
        **fields,
    }
