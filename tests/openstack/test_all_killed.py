"""One lease of everything: all or nothing, and whatever happens to its managers, the same end.

Hosts, instances, a floating IP, volumes and a stack begin and end together. A manager may die at
any change that it makes in any service: the next one completes the work.
"""

import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import pytest
from openstack.connection import Connection

from tests.openstack import guests, settings, traces
from tests.openstack.accounts import Account, Project
from tests.openstack.addresses import SPARE, Public, passing_network
from tests.openstack.conftest import Deploy, MakeProject
from tests.openstack.deployment import Deployment
from tests.openstack.nova_proxy import Answer, Change, Fate, NovaProxy, pass_on
from tests.openstack.storage import Base, passing_type
from tests.support.process import eventually

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
PATIENCE = 180.0


@pytest.fixture(scope="module")
def lab(project: MakeProject) -> Project:
    """Return the project whose leases these are."""
    return project("everything")


@pytest.fixture
def public(administrator: Account, lab: Project) -> Iterator[Public]:
    """Return an external network of our own."""
    with passing_network(administrator.cloud, lab.id) as made:
        yield made


@pytest.fixture
def base(administrator: Account) -> Iterator[Base]:
    """Return a volume type of our own."""
    with passing_type(administrator.cloud) as made:
        yield made


@pytest.fixture
def ways(cloud: Connection) -> Iterator[dict[str, NovaProxy]]:
    """Return a way to each service on which managers can die."""
    with ExitStack() as made:
        yield {
            name: made.enter_context(NovaProxy(cloud.session.get_endpoint(service_type=service)))
            for name, service in SERVICES.items()
        }


@pytest.fixture
def climate(deploy: Deploy, ways: dict[str, NovaProxy], public: Public, base: Base) -> Deployment:
    """Return a deployment with all that the lease takes."""
    options = {f"{name}__endpoint_override": way.url for name, way in ways.items()}
    for name, path in (("cinder", "/v3/%(project_id)s"), ("heat", "/v1/%(project_id)s")):
        options[f"{name}__endpoint_override"] = f"http://{urlsplit(ways[name].url).netloc}{path}"
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
    wanted = {"resource_type": "virtual:volume", "name": base.name, "properties": {"gigabytes": 20}}
    made.http(made.administrator).ok("POST", "/v2/resources", wanted)
    return made


def everything(cloud: Connection, public: Public, base: Base) -> list[dict[str, Any]]:
    """Return one reservation of each kind."""
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


class Story:
    """Leases of everything, one after the other, under managers that die and are replaced."""

    def __init__(
        self,
        climate: Deployment,
        ways: dict[str, NovaProxy],
        lab: Project,
        asked: list[dict[str, Any]],
        look: Callable[[], Any],
    ) -> None:
        self._climate, self._ways, self._lab = climate, ways, lab
        self._asked, self._look = asked, look
        self._manager = climate.start_manager()
        self.kills = 0

    def live(self, make_fate: Callable[[], Fate]) -> list[Any]:
        """Have a lease live, and its start and its end meet a fate of their own each.

        No manager is there while it is asked for: what the API changes is nobody's fate.
        """
        self._begin(pass_on)
        os.kill(self._manager.pid, signal.SIGKILL)
        body = {"name": "all", "start": "now", "duration": 7200, "reservations": self._asked}
        http = self._climate.http(self._lab.member)
        lease = http.ok("POST", "/v2/leases", body)
        self._begin(make_fate())
        self._manager, self.kills = self._climate.start_manager(), 0
        self._see_to(lease["id"], "ACTIVE")
        seen = [self._state(lease["id"])]
        self._begin(make_fate())
        http.ok("PATCH", f"/v2/leases/{lease['id']}", {"end": "now"})
        self._see_to(lease["id"], "TERMINATED")
        seen.append(self._state(lease["id"]))
        http.call("DELETE", f"/v2/leases/{lease['id']}")
        return seen

    def killing(self, number: int) -> Fate:
        """Return the fate that two managers die at one step, before and after it is made."""
        numbers, lock = itertools.count(1), threading.Lock()

        def fate(_: Change, forward: Callable[[], Answer]) -> Answer | None:
            with lock:
                at = next(numbers)
            if at not in {number, number + 1}:
                return forward()
            if at > number:
                forward()
            os.kill(self._manager.pid, signal.SIGKILL)
            return None

        return fate

    def _begin(self, fate: Fate) -> None:
        for way in self._ways.values():
            way.begin(fate)

    def _see_to(self, lease_id: str, status: str) -> None:
        """Wait until the lease has ``status``; managers that were killed get successors."""

        def has_status() -> bool:
            rows = self._climate.query("SELECT status FROM leases WHERE id = ?", lease_id)
            return rows == [(status,)]

        while not has_status():
            if not self._manager.is_running:
                self.kills += 1
                self._manager = self._climate.start_manager()
            eventually(
                lambda: has_status() or not self._manager.is_running, f"it is {status}", PATIENCE
            )

    def _state(self, lease_id: str) -> Any:
        lease = self._climate.http(self._lab.member).ok("GET", f"/v2/leases/{lease_id}")
        told = [
            (one["resource_type"], one["status"], one["missing_resources"])
            for one in lease["reservations"]
        ]
        return [lease["status"], lease["degraded"], told, self._look(), self._climate.audit()]


@pytest.fixture
def look(climate: Deployment, public: Public, base: Base, lab: Project) -> Callable[[], Any]:
    """Return what looks at all that the project has in the cloud."""

    def look() -> Any:
        cloud = climate.cloud
        mine = lab.member.cloud
        held = traces.aggregates(cloud, HOSTS)
        return {
            "aggregates": sorted(
                (len(one["hosts"]), len(one["metadata"])) for one in held.values()
            ),
            "servers": [one.status for one in mine.compute.servers()],
            "addresses": [(at, one.project_id) for at, one in public.floatingips().items()],
            "volumes": [
                (one["size"], one["status"]) for kind in base.types() for one in base.volumes(kind)
            ],
            "types": len(base.types()),
            "stacks": [one.status for one in mine.orchestration.stacks()],
        }

    return look


def test_it_is_admitted_as_a_whole_or_not_at_all(
    climate: Deployment, lab: Project, cloud: Connection, public: Public, base: Base
) -> None:
    http = climate.http(lab.member)
    asked = everything(cloud, public, base)
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


def test_a_manager_killed_at_any_step_leaves_the_same_behind_as_none_killed(
    climate: Deployment,
    ways: dict[str, NovaProxy],
    lab: Project,
    look: Callable[[], Any],
    cloud: Connection,
    public: Public,
    base: Base,
) -> None:
    story = Story(climate, ways, lab, everything(cloud, public, base), look)
    undisturbed = story.live(lambda: pass_on)
    started, ended = undisturbed
    assert (started[0], ended[0]) == ("ACTIVE", "TERMINATED")
    assert started[3]["volumes"] == [(1, "available")] * 2
    assert (started[3]["servers"], len(started[3]["stacks"])) == (["ACTIVE"], 1)
    assert (started[4], ended[4]) == ([], [])
    assert not any(
        ended[3][name] for name in ("servers", "addresses", "volumes", "types", "stacks")
    )
    for number in itertools.count(1):
        seen = story.live(lambda number=number: story.killing(number))
        assert seen == undisturbed, f"killed at step {number}"
        if story.kills == 0:
            break
    assert number > 20
