"""A manager is killed at any change of the cloud; its successor completes the change."""

import json
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
from tests.openstack.proxy import FaultyProxy
from tests.openstack.storage import Base
from tests.openstack.test_instance_faults import INSTANCE_RESERVATION
from tests.openstack.test_open_match import of_size
from tests.support.service import host_reservation

pytestmark = pytest.mark.nightly

HOSTS = settings.HOSTS[:3]
INSTANCES = "physical.host.plugin,virtual.instance.plugin"
OPTIONS: dict[str, object] = {
    "manager__claim_timeout": 1,
    "manager__minutes_before_end_lease": 0,
}


class HostCycle(LeaseCycle):
    """Leases of three hosts."""

    def reservations(self) -> list[dict[str, Any]]:
        return [host_reservation(len(HOSTS), len(HOSTS), before_end="")]

    def use(self, lease_id: str) -> None:
        hint = {"reservation": self._reservation_id(lease_id)}
        hints = hint if self._climate.isolation == "blazar" else {}
        server = guests.boot(self._lab.admin, "guest", host=HOSTS[0], scheduler_hints=hints)
        assert server.status == "ACTIVE", server.fault

    def state(self, lease_id: str) -> Any:
        lease = self._climate.by(self._lab.member).lease.get(lease_id)
        [reservation] = lease["reservations"]
        state = {
            "aggregates": traces.aggregates(self._climate.cloud),
            "slots": traces.slots(self._climate.cloud, reservation["id"]),
            "servers": len(traces.servers_on(self._climate.cloud)),
            "audit": self._climate.audit(),
            "held": self._climate.hosts_of(lease_id),
            "lease": (lease["status"], lease["degraded"]),
            "reservation": reservation["status"],
            "flags": (reservation["missing_resources"], reservation["resources_changed"]),
            "events": sorted((event["event_type"], event["status"]) for event in lease["events"]),
            "notifications": self._climate.query(
                "SELECT event_type FROM outbox WHERE lease_id = ? ORDER BY id", lease_id
            ),
        }
        return _with_constant_names(json.dumps(state), reservation["id"])

    def _reservation_id(self, lease_id: str) -> str:
        lease = self._climate.by(self._lab.member).lease.get(lease_id)
        return str(lease["reservations"][0]["id"])


def _with_constant_names(state: str, reservation_id: str) -> str:
    resource_class = traces.resource_class(reservation_id)
    named = state.replace(reservation_id, "RESERVATION").replace(resource_class, "CLASS")
    return json.dumps(json.loads(named), sort_keys=True)


class InstanceCycle(HostCycle):
    """Leases of two instances, one on each of two hosts."""

    def reservations(self) -> list[dict[str, Any]]:
        return [INSTANCE_RESERVATION]

    def use(self, lease_id: str) -> None:
        flavor_id = self._reservation_id(lease_id)
        server = guests.boot(self._lab.member, "guest", flavor_id=flavor_id)
        assert server.status == "ACTIVE", server.fault


class OpenInstanceCycle(HostCycle):
    """Leases of two instances that servers of the project use although they do not name them."""

    def reservations(self) -> list[dict[str, Any]]:
        return [of_size(self._climate.cloud, 2)]

    def use(self, lease_id: str) -> None:
        """Boot servers with an ordinary flavor: two use the reservation, and one runs elsewhere."""
        reserved = set(self._climate.hosts_of(lease_id))
        flavor_id, _ = guests.smallest(self._climate.cloud)
        servers = [guests.boot(self._lab.member, "guest", flavor_id=flavor_id) for _ in range(3)]
        assert {server.status for server in servers} == {"ACTIVE"}
        hosts = [guests.host_of(self._climate.administrator, server) for server in servers]
        assert [host is not None and host[0] in reserved for host in hosts] == [True, True, False]
        self._elsewhere = servers[-1]

    def state(self, lease_id: str) -> Any:
        """Return the usual state, and what climate holds of the hosts in Placement."""
        return [super().state(lease_id), sorted(traces.held(self._climate.cloud, HOSTS).items())]

    def clean_up(self, lease_id: str) -> None:
        """Delete the server that the lease did not delete, because it runs elsewhere."""
        super().clean_up(lease_id)
        guests.remove(self._climate.cloud, self._elsewhere.id)


class ServerCycle(InstanceCycle):
    """Leases whose two servers climate boots, and of which it keeps images."""

    def reservations(self) -> list[dict[str, Any]]:
        _, image = guests.smallest(self._lab.member.cloud)
        server = {"imageRef": image, "networks": "none", "name": "web"}
        life = {"on_start": "create", "on_end": "snapshot", "server": server}
        return [{**INSTANCE_RESERVATION, **life}]

    def use(self, lease_id: str) -> None:
        servers = list(self._lab.member.cloud.compute.servers())
        assert sorted(server.name for server in servers) == ["web-1", "web-2"]
        assert {server.status for server in servers} == {"ACTIVE"}
        assert {server.user_id for server in servers} == {self._lab.member.user_id}

    def images(self, cloud: Connection) -> list[Any]:
        return list(cloud.image.images(owner=self._lab.id))


class AddressCycle(LeaseCycle):
    """Leases of two floating IPs."""

    def __init__(
        self, climate: Deployment, lab: Project, neutron: FaultyProxy, public: Public
    ) -> None:
        super().__init__(climate, lab, neutron)
        self._public = public

    def reservations(self) -> list[dict[str, Any]]:
        params = {"network_id": self._public.id, "amount": 2, "required_floatingips": SPARE[:2]}
        return [{"resource_type": "virtual:floatingip", **params}]

    def use(self, lease_id: str) -> None:
        floatingip = self._public.floatingips()[SPARE[0]]
        self._lab.member.cloud.network.update_ip(floatingip, port_id=self._public.port_id)

    def state(self, lease_id: str) -> Any:
        floatingips = sorted(self._public.floatingips().items())
        state = [(at, ip.project_id, len(ip.tags), ip.port_id) for at, ip in floatingips]
        return [state, self._climate.manage("audit")]


class VolumeCycle(LeaseCycle):
    """Leases of two volumes, with the parameters ``params``."""

    def __init__(
        self, climate: Deployment, lab: Project, cinder: FaultyProxy, base: Base, **params: str
    ) -> None:
        super().__init__(climate, lab, cinder)
        self._base, self._params = base, params

    def reservations(self) -> list[dict[str, Any]]:
        params = {"volume_type": self._base.name, "amount": 2, "size": 1, **self._params}
        return [{"resource_type": "virtual:volume", **params}]

    def use(self, lease_id: str) -> None:
        """Leave the volumes unused."""

    def state(self, lease_id: str) -> Any:
        types = self._base.types()
        quota = self._base.quota(self._lab.id)
        return [
            [
                (type_["is_public"], type_["extra_specs"], self._base.access(type_["id"]))
                for type_ in types.values()
            ],
            [
                (volume["size"], volume["status"], sorted(volume["metadata"]), name in types)
                for name in (*types, self._base.name)
                for volume in self._base.volumes(name)
            ],
            [quota[f"{limit}_{name}"] for name in types for limit in ("volumes", "gigabytes")],
            self._default(types),
        ]

    def _default(self, types: dict[str, Any]) -> str | None:
        """Return the project's default type; "reserved" for that of the reservation."""
        default = self._base.default_of(self._lab.id)
        return "reserved" if default in {type_["id"] for type_ in types.values()} else default

    def clean_up(self, lease_id: str) -> None:
        super().clean_up(lease_id)
        self._base.clear()


class OpenVolumeCycle(VolumeCycle):
    """Leases of two volumes, which the project creates without naming a type."""

    def use(self, lease_id: str) -> None:
        storage = self._lab.member.cloud.block_storage
        storage.wait_for_status(storage.create_volume(size=1), interval=0.2)


def check_each_kill(cycle: LeaseCycle) -> list[list[str]]:
    """Kill managers at each step in turn; return the steps of start and end."""
    undisturbed = cycle.run_undisturbed()
    assert all('"audit": []' in state for state in undisturbed), undisturbed
    steps = cycle.steps
    assert cycle.check_each_kill(undisturbed) > max(map(len, steps))
    return steps


@pytest.mark.timeout(600)
@pytest.mark.parametrize("isolation", ["blazar", "tenancy"])
def test_a_kill_at_any_step_changes_no_result_of_a_host_lease(
    isolation: str, deploy: Deploy, nova: FaultyProxy, lab: Project
) -> None:
    climate = deploy(isolation, nova__endpoint_override=nova.url, **OPTIONS)
    climate.register(*HOSTS)
    for steps in check_each_kill(HostCycle(climate, lab, nova)):
        assert steps.count("POST os-aggregates action add_host") == len(HOSTS)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("service", ["nova", "placement"])
def test_a_kill_at_any_step_changes_no_result_of_an_instance_lease(
    service: str, deploy: Deploy, lab: Project, cloud: Connection, make_proxy: MakeProxy
) -> None:
    proxy = make_proxy(getattr(cloud, {"nova": "compute"}.get(service, service)).get_endpoint())
    overrides = {f"{service}__endpoint_override": proxy.url}
    climate = deploy("blazar", manager__plugins=INSTANCES, **overrides, **OPTIONS)
    climate.register(*HOSTS[:2])
    check_each_kill(InstanceCycle(climate, lab, proxy))


@pytest.mark.timeout(1800)
def test_a_kill_at_any_step_changes_no_result_of_an_open_instance_lease(
    deploy: Deploy, lab: Project, cloud: Connection, make_proxy: MakeProxy
) -> None:
    proxies = {
        "nova": make_proxy(cloud.compute.get_endpoint()),
        "placement": make_proxy(cloud.placement.get_endpoint()),
    }
    overrides = {f"{name}__endpoint_override": proxy.url for name, proxy in proxies.items()}
    climate = deploy("tenancy", manager__plugins=INSTANCES, **overrides, **OPTIONS)
    climate.register(HOSTS[0])
    cycle = OpenInstanceCycle(climate, lab, *proxies.values())
    undisturbed = cycle.run_undisturbed()
    (started, held), (ended, left) = undisturbed
    assert all('"audit": []' in state for state in (started, ended)), undisturbed
    assert ([host for host, _ in held], left) == (HOSTS[:1], [])
    steps = cycle.steps
    assert cycle.check_each_kill(undisturbed) > max(map(len, steps))


@pytest.mark.timeout(1800)
def test_a_kill_at_any_step_boots_no_server_and_keeps_no_image_twice(
    deploy: Deploy, nova: FaultyProxy, lab: Project, cloud: Connection
) -> None:
    overrides = {"nova__endpoint_override": nova.url, "manager__plugins": INSTANCES}
    climate = deploy("blazar", **overrides, **OPTIONS)
    climate.register(*HOSTS[:2])
    cycle = ServerCycle(climate, lab, nova)
    try:
        starting, ending = check_each_kill(cycle)
        assert starting.count("POST servers server") == len(HOSTS[:2])
        assert ending.count("POST servers action createImage") == len(HOSTS[:2])
        by_server = {image.properties["climate_server"] for image in cycle.images(cloud)}
        assert len(by_server) == len(cycle.images(cloud))
    finally:
        for image in cycle.images(cloud):
            cloud.image.delete_image(image)


@pytest.mark.timeout(600)
def test_a_kill_at_any_step_changes_no_result_of_a_floating_ip_lease(
    deploy: Deploy, neutron: FaultyProxy, public: Public, lab: Project
) -> None:
    options = {
        "manager__plugins": "virtual.floatingip.plugin",
        "manager__claim_timeout": 1,
        "virtual:floatingip__cloud": "neutron",
        "neutron__endpoint_override": neutron.url,
    }
    climate = deploy("blazar", (), **options)
    for address in SPARE[:2]:
        climate.by(climate.administrator).floatingip.create(public.id, address)
    cycle = AddressCycle(climate, lab, neutron, public)
    undisturbed = cycle.run_undisturbed()
    assert [len(floatingips) for floatingips, _ in undisturbed] == [2, 0]
    assert [audit for _, audit in undisturbed] == [[], []]
    assert cycle.check_each_kill(undisturbed) > 3


def volume_options(cinder: FaultyProxy) -> dict[str, object]:
    return {
        "manager__plugins": "virtual.volume.plugin",
        "manager__claim_timeout": 1,
        "virtual:volume__cloud": "cinder",
        "cinder__endpoint_override": f"http://{urlsplit(cinder.url).netloc}/v3/%(project_id)s",
    }


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("on_end", ["delete", "keep"])
def test_a_kill_at_any_step_changes_no_result_of_a_volume_lease(
    deploy: Deploy, cinder: FaultyProxy, base: Base, lab: Project, on_end: str
) -> None:
    climate = deploy("blazar", (), **volume_options(cinder))
    base.register(climate.http(climate.administrator), 10)
    cycle = VolumeCycle(climate, lab, cinder, base, on_end=on_end)
    undisturbed = cycle.run_undisturbed()
    assert [len(state[1]) for state in undisturbed] == [2, 2 if on_end == "keep" else 0]
    assert [len(state[0]) for state in undisturbed] == [1, 0]
    assert cycle.check_each_kill(undisturbed) > 3


@pytest.mark.timeout(1200)
def test_a_kill_at_any_step_changes_no_result_of_an_open_volume_lease(
    deploy: Deploy, cinder: FaultyProxy, base: Base, lab: Project
) -> None:
    """The former default type returns, and the volume that names no type stays with its project."""
    climate = deploy("blazar", (), **volume_options(cinder))
    base.register(climate.http(climate.administrator), 10)
    former = base.cloud.block_storage.create_type(name=f"{base.name}-former").id
    base.set_default(lab.id, former)
    try:
        cycle = OpenVolumeCycle(climate, lab, cinder, base, match="open", on_end="keep")
        undisturbed = cycle.run_undisturbed()
        assert [len(state[1]) for state in undisturbed] == [0, 1]
        assert [state[3] for state in undisturbed] == ["reserved", former]
        assert cycle.check_each_kill(undisturbed) > max(map(len, cycle.steps))
    finally:
        base.set_default(lab.id, None)
        base.cloud.block_storage.delete_type(former)
