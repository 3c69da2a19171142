"""Thousands of mutated requests to a service with all parts enabled, while its manager works.

No answer is a 5xx or no JSON, the process survives, and afterwards the invariants hold. The
requests of ``tests/api/test_random_requests.py`` go to the application alone, with one resource
type, and without a manager. The n-th request is the same for the same seed, apart from the current
time and the ids in earlier answers.
"""

import json
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from climate.cmd import bootstrap
from climate.config import registry as config_registry
from climate.manager.audit import cloud as cloud_audit
from climate.manager.audit.invariants import violations
from tests.api.random_requests import Answer, Request, check
from tests.support.process import (
    Program,
    Service,
    eventually,
    free_port,
    standalone,
    write_config,
)
from tests.support.receiver import receiving
from tests.system.fuzz.client import Client
from tests.system.fuzz.known import Known
from tests.system.fuzz.mutations import mutated
from tests.system.fuzz.valid import ROUTE_NAMES, Source, any_route, draft

SEED = os.environ.get("CLIMATE_TEST_FUZZ_SEED", "1")
_FULL, _FEW = 20_000, 400
REQUESTS = int(os.environ.get("CLIMATE_TEST_FUZZ_REQUESTS", _FULL))
_OTHER_MEDIA = {"text/plain", "text/html", "text/event-stream", "text/calendar"}
_WITH_OTHER_MEDIA = ("/metrics", "/v2/docs", "/v2/notifications/stream", "/console", "/email/")
_PLUGINS = "physical.host.plugin, virtual.instance.plugin, flavor.instance.plugin,"
_PLUGINS += " virtual.floatingip.plugin, virtual.network.plugin, virtual.volume.plugin,"
_PLUGINS += " virtual.stack.plugin"

_RESOURCES: list[tuple[str, Any]] = [
    *(
        (
            "/v1/floatingips",
            {"floating_network_id": "sim-public", "floating_ip_address": f"198.51.100.{last}"},
        )
        for last in range(2, 20)
    ),
    *(
        (
            "/v1/networks",
            {"network_type": "vlan", "physical_network": "sim", "segment_id": 100 + number},
        )
        for number in range(1, 9)
    ),
    (
        "/v2/resources",
        {"resource_type": "virtual:volume", "name": "gold", "properties": {"gigabytes": 900}},
    ),
]


def _configuration(home: Path) -> Path:
    return write_config(
        home / "climate.conf",
        database__connection=f"sqlite:///{home}/c.sqlite",
        api__delete_wait=0.2,
        api__search_timeout=1,
        api__metrics="true",
        manager__plugins=_PLUGINS,
        manager__self_audit_interval=5,
        limits__enabled="true",
        limits__project_leases=100,
        limits__project_vcpus=1000,
        limits__project_horizon=400 * 86400,
        provisioning__enabled="true",
        provisioning__interval=2,
        provisioning__power_off="true",
        provisioning__idle_time=1,
        notifications__followers=40,
        notifications__subscriptions_per_project=3,
        notifications__webhook_http="true",
        notifications__webhook_networks="127.0.0.0/8,::1/128",
        notifications__webhook_attempts=1,
        notifications__webhook_timeout=1,
        api__public_url="https://climate.example",
        email__server="127.0.0.1",
        email__port=free_port(),
        email__security="none",
        email__sender="climate@lab.example",
        email__subscriptions_per_project=3,
        simulated__hosts=32,
        simulated__journal=home / "cloud",
    )


class Fuzz:
    """Sends requests to a service, checks the answers, and counts them."""

    def __init__(self, client: Client, program: Program, receiver: str) -> None:
        self.known = Known()
        self.statuses: Counter[int] = Counter()
        self.served: Counter[str] = Counter()
        self._client = client
        self._program = program
        self._receiver = receiver

    def send(self, number: int) -> None:
        """Send the request with this number."""
        rng = random.Random(f"{SEED} {number}")  # noqa: S311 - repeatable, not secret
        route = any_route(rng)
        valid = draft(Source(rng, self.known, self._receiver), route)
        request = mutated(rng, valid, self.known)
        try:
            answer = self._client.send(request)
            _check(request, answer)
        except Exception as error:
            error.add_note(f"Seed {SEED}, request {number}, {route}: {request}")
            error.add_note("\n".join(_tracebacks(self._program.errors)[-1:]))
            raise
        self.statuses[answer.status] += 1
        # ``/versions`` answers with 300, as those of OpenStack's services do.
        self.served[route] += answer.status <= 300
        self.known.learn(request.path, answer)
        if request.method == "DELETE" and answer.status == 204:
            self.known.forget(request.path)


def _check(request: Request, answer: Answer) -> None:
    """Check that an answer is no 5xx, and JSON if it has a body at all."""
    check(request, answer)
    media = (answer.headers.get("Content-Type") or "").partition(";")[0]
    is_options = request.method == "OPTIONS" and answer.status == 200
    if request.method == "HEAD" or is_options or answer.status in {204, 304}:
        assert answer.body == b"", answer
    elif request.path.startswith(_WITH_OTHER_MEDIA) or request.path.endswith(".ics"):
        assert media in _OTHER_MEDIA or media.endswith("json"), answer
    elif answer.status != 202 or answer.body:
        assert media in {"application/json", "application/problem+json"}, answer
        json.loads(answer.body)


@contextmanager
def _fuzzing(home: Path) -> Iterator[Fuzz]:
    """Run a service to fuzz; at the end, delete all leases and check what remains."""
    sys.stdout.write(f"CLIMATE_TEST_FUZZ_SEED={SEED}\n")
    conf = _configuration(home)
    with (
        receiving() as receiver,
        standalone(home, "--config-file", str(conf)) as (service, program),
    ):
        for path, body in _RESOURCES:
            service.ok("POST", path, body)
        with closing(Client(service.port)) as client:
            yield Fuzz(client, program, receiver.url)
        assert program.is_running
        _delete_leases(service)
        assert service.ok("GET", "/v2/notifications?event_type=audit.*")["notifications"] == []
    assert _tracebacks(program.errors) == []
    _check_database(conf)


def _tracebacks(log: str) -> list[str]:
    return [f"Traceback{text[:6_000]}" for text in log.split("Traceback")[1:]]


def _delete_leases(service: Service) -> None:
    def are_gone() -> bool:
        leases = service.ok("GET", "/v2/leases?all_projects=true&limit=1000")["leases"]
        for lease in leases:
            status = service.call("DELETE", f"/v2/leases/{lease['id']}").status_code
            assert status in {202, 204, 404}, lease
        return not leases

    eventually(are_gone, "all leases are gone", within=300)


def _check_database(conf: Path) -> None:
    """Check the invariants, and that the cloud is as the database says."""
    options = config_registry.new()
    config_registry.load(options, "climate-manage", [f"--config-file={conf}"])
    with bootstrap.open_runtime(options) as runtime:
        assert list(violations(runtime.store)) == []
        assert [drift.description for drift in cloud_audit.audit(runtime)] == []


def test_a_few_hundred_mutated_requests_get_answers(tmp_path: Path) -> None:
    with _fuzzing(tmp_path) as fuzz:
        for number in range(_FEW):
            fuzz.send(number)


@pytest.mark.nightly(reason="sends thousands of requests")
@pytest.mark.timeout(1800)
def test_mutated_requests_get_answers_and_keep_the_invariants(tmp_path: Path) -> None:
    with _fuzzing(tmp_path) as fuzz:
        for number in range(REQUESTS):
            fuzz.send(number)
    accepted = sum(n for status, n in fuzz.statuses.items() if status < 300 or status == 409)
    assert accepted >= REQUESTS / 4, fuzz.statuses
    # Only the receiver of a mail knows a link in it.
    names = [name for name in ROUTE_NAMES if " /email/" not in name]
    unserved = [name for name in names if not fuzz.served[name]]
    assert unserved == [] or REQUESTS < _FULL, unserved
