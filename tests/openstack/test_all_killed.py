"""A lease with all types of reservations is admitted as a whole, and survives killed managers."""

import itertools
import os
import signal
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import pytest
from openstack.connection import Connection

from tests.openstack import guests, settings, traces
from tests.openstack.accounts import Project
from tests.openstack.addresses import SPARE, Public
from tests.openstack.conftest import Deploy, MakeProxy
from tests.openstack.deployment import Deployment
from tests.openstack.killing import LeaseCycle
from tests.openstack.proxy import Fault, FaultyProxy, no_fault
from tests.openstack.storage import Base

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]

HOSTS = settings.HOSTS[:3]
SERVICES = {
    "nova": "compute",
    "placement": "placement",
    "neutron": "network",
    "cinder": "block-storage",
    "heat": "orchestration",
}
PLUGINS = ",".join(
    f"{name}.plugin"
    for name in (
        "physical.host",
        "virtual.instance",
        "flavor.instance",
        "virtual.floatingip",
        "virtual.volume",
        "virtual.stack",
    )
)
CloudState = Callable[[], Any]
# Seconds that a creation is assumed to take; a manager is killed meanwhile.
LEAD = 12


@pytest.fixture
def proxies(cloud: Connection, make_proxy: MakeProxy) -> dict[str, FaultyProxy]:
    endpoint = cloud.session.get_endpoint
    return {name: make_proxy(endpoint(service_type=type_)) for name, type_ in SERVICES.items()}


@pytest.fixture
def climate(
    deploy: Deploy, proxies: dict[str, FaultyProxy], public: Public, base: Base
) -> Deployment:
    """Return a deployment with all resources that the lease needs."""
    options: dict[str, Any] = {"creation__enabled": True, "creation__prior": LEAD}
    options |= {f"{name}__endpoint_override": proxy.url for name, proxy in proxies.items()}
    for name, path in (("cinder", "/v3/%(project_id)s"), ("heat", "/v1/%(project_id)s")):
        options[f"{name}__endpoint_override"] = f"http://{urlsplit(proxies[name].url).netloc}{path}"
    types = {"floatingip": "neutron", "volume": "cinder", "stack": "heat"}
    made = deploy(
        "blazar",
        manager__plugins=PLUGINS,
        manager__claim_timeout=1,
        manager__minutes_before_end_lease=0,
        **{f"virtual:{name}__cloud": driver for name, driver in types.items()},
        **options,
    )
    made.register(*HOSTS)
    admin = made.by(made.administrator)
    admin.floatingip.create(public.id, SPARE[0])
    base.register(made.http(made.administrator), 20)
    return made


def all_types(cloud: Connection, public: Public, base: Base) -> list[dict[str, Any]]:
    flavor_id, image_id = guests.smallest(cloud)
    nowhere = [{"allocate_network": "none"}]
    web = {"image": image_id, "flavor": flavor_id, "networks": nowhere}
    template = {
        "heat_template_version": "2016-10-14",
        "resources": {"web": {"type": "OS::Nova::Server", "properties": web}},
    }
    asked: dict[str, dict[str, Any]] = {
        "physical:host": {"min": 1, "max": 1},
        "virtual:instance": {
            "amount": 1,
            "vcpus": 1,
            "memory_mb": 64,
            "disk_gb": 1,
            "affinity": None,
        },
        "virtual:floatingip": {"network_id": public.id, "amount": 1},
        "virtual:volume": {"volume_type": base.name, "amount": 2, "size": 1},
        "virtual:stack": {"template": template},
    }
    return [{"resource_type": name, "params": params} for name, params in asked.items()]


class MixedCycle(LeaseCycle):
    """Leases with a reservation of each type."""

    def __init__(
        self,
        climate: Deployment,
        lab: Project,
        proxies: Iterable[FaultyProxy],
        reservations: list[dict[str, Any]],
        cloud_state: CloudState,
    ) -> None:
        super().__init__(climate, lab, *proxies)
        self._reservations, self._cloud_state = reservations, cloud_state

    def create(self, make_fault: Callable[[], Fault]) -> str:
        """Create a lease while no manager runs: faults apply only to changes by managers."""
        self.set_fault(no_fault)
        os.kill(self._manager.pid, signal.SIGKILL)
        body = {
            "name": "all",
            "start": self.start(),
            "duration": 7200,
            "reservations": self.reservations(),
        }
        lease = self._climate.http(self._lab.member).ok("POST", "/v2/leases", body)
        self.set_fault(make_fault())
        self._manager, self.kills = self._climate.start_manager(), 0
        return str(lease["id"])

    def start(self) -> str:
        return "now"

    def reservations(self) -> list[dict[str, Any]]:
        return self._reservations

    def use(self, lease_id: str) -> None:
        """Leave the resources unused."""

    def state(self, lease_id: str) -> Any:
        lease = self._climate.http(self._lab.member).ok("GET", f"/v2/leases/{lease_id}")
        reservations = [
            (reservation["resource_type"], reservation["status"], reservation["missing_resources"])
            for reservation in lease["reservations"]
        ]
        lease_state = [lease["status"], lease["degraded"], reservations]
        return [*lease_state, self._cloud_state(), self._climate.audit()]


class AheadCycle(MixedCycle):
    """Leases whose resources are created before their start; managers are killed until then."""

    def start(self) -> str:
        start = datetime.now().astimezone().replace(microsecond=0) + timedelta(seconds=2 * LEAD)
        return start.isoformat()

    def check_each_kill(self, undisturbed: list[Any]) -> int:
        for number in itertools.count(1):
            lease_id = self.create(partial(self._kill_at, number))
            self._wait(lease_id, "ACTIVE")
            self.set_fault(no_fault)
            assert self.state(lease_id) == undisturbed[0], f"killed at step {number}"
            self.clean_up(lease_id)
            self.wait_until(lambda: self._climate.query("SELECT id FROM leases") == [], "deleted")
            if self.kills == 0:
                break
        return number


@pytest.fixture
def cloud_state(climate: Deployment, public: Public, base: Base, lab: Project) -> CloudState:
    """Return a function that lists what the project has in the cloud."""

    def cloud_state() -> Any:
        cloud = climate.cloud
        mine = lab.member.cloud
        held = traces.aggregates(cloud, HOSTS)
        return {
            "aggregates": sorted(
                (len(item["hosts"]), len(item["metadata"])) for item in held.values()
            ),
            "servers": [server.status for server in mine.compute.servers()],
            "addresses": [(at, one.project_id) for at, one in public.floatingips().items()],
            "volumes": [
                (volume["size"], volume["status"])
                for kind in base.types()
                for volume in base.volumes(kind)
            ],
            "types": len(base.types()),
            "stacks": [stack.status for stack in mine.orchestration.stacks()],
        }

    return cloud_state


def test_a_lease_of_all_types_is_admitted_as_a_whole_or_rejected(
    climate: Deployment, lab: Project, cloud: Connection, public: Public, base: Base
) -> None:
    http = climate.http(lab.member)
    asked = all_types(cloud, public, base)
    for number, (name, too_much) in enumerate(
        (("max", 9), ("amount", 10_000), ("amount", 9), ("amount", 99))
    ):
        params = {**asked[number]["params"], name: too_much}
        if name == "max":
            params["min"] = too_much
        wanted = [*asked[:number], {**asked[number], "params": params}, *asked[number + 1 :]]
        body = {"name": "all", "start": "now", "duration": 7200, "reservations": wanted}
        refusal = http.call("POST", "/v2/leases", body)
        assert refusal.status_code == HTTPStatus.CONFLICT, refusal.text
    assert climate.query("SELECT id FROM allocations") == []
    assert list(lab.member.cloud.orchestration.stacks()) == []


def test_a_kill_at_any_step_changes_no_result_of_a_lease_of_all_types(
    climate: Deployment,
    proxies: dict[str, FaultyProxy],
    lab: Project,
    cloud_state: CloudState,
    cloud: Connection,
    public: Public,
    base: Base,
) -> None:
    reservations = all_types(cloud, public, base)
    cycle = MixedCycle(climate, lab, proxies.values(), reservations, cloud_state)
    undisturbed = cycle.run_undisturbed()
    started, ended = undisturbed
    assert (started[0], ended[0]) == ("ACTIVE", "TERMINATED")
    assert started[3]["volumes"] == [(1, "available")] * 2
    assert (started[3]["servers"], len(started[3]["stacks"])) == (["ACTIVE"], 1)
    assert (started[4], ended[4]) == ([], [])
    assert not any(
        ended[3][name] for name in ("servers", "addresses", "volumes", "types", "stacks")
    )
    assert cycle.check_each_kill(undisturbed) > 20


def test_a_kill_at_any_step_before_the_start_changes_no_result_of_the_lease(
    climate: Deployment,
    proxies: dict[str, FaultyProxy],
    lab: Project,
    cloud_state: CloudState,
    cloud: Connection,
    public: Public,
    base: Base,
) -> None:
    asked = {each["resource_type"]: each for each in all_types(cloud, public, base)}
    created = [asked["virtual:volume"], asked["virtual:floatingip"], asked["virtual:stack"]]
    cycle = AheadCycle(climate, lab, proxies.values(), created, cloud_state)
    undisturbed = cycle.run_undisturbed()
    assert (undisturbed[0][0], undisturbed[0][4]) == ("ACTIVE", [])
    assert cycle.check_each_kill(undisturbed) > 10
