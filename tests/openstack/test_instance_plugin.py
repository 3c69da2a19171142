"""The instance plugin keeps the contract on a real Nova and Placement."""

import contextlib
import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from oslo_config.cfg import ConfigOpts

from climate.config import registry as config_registry
from climate.core.lease.model import Reservation
from climate.plugins.base import DiscoveredResource, Drift, ExpectedState, ResourcePlugin
from climate.plugins.hosts.nova import NovaCloud
from climate.plugins.hosts.nova_pools import HostOccupied
from climate.plugins.hosts.plugin import HostPlugin
from climate.plugins.instances.cloud import TARGETED, Match
from climate.plugins.instances.nova import NovaInstances
from climate.plugins.instances.plugin import InstancePlugin
from tests.openstack import guests, settings, traces
from tests.openstack.accounts import Account
from tests.plugins.contract import Interrupted, lease
from tests.plugins.instances.contract import SlotContract
from tests.support import servers
from tests.support.process import write_config

# Each is dozens of starts and ends, interrupted one step later each time.
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]

HOSTS = settings.HOSTS[:3]


class FragileNova(NovaInstances):
    """The real Nova, which fails when a test says so; any user may use the slots."""

    left: int | None = None

    def __init__(self, conf: ConfigOpts, project_id: str) -> None:
        super().__init__(conf, contextlib.nullcontext)
        self.made: set[str] = set()
        self._project_id = project_id
        send = self._session.request

        def request(url: str, method: str, **options: Any) -> Any:
            if method != "GET" and options.get("authenticated") is not False:
                self._count(f"{method} {url}")
            return send(url, method, **options)

        self._session.request = request  # type: ignore[method-assign, assignment]

    def _count(self, change: str) -> None:
        if self.left == 0:
            raise Interrupted(change)
        if self.left is not None:
            self.left -= 1

    def open_slots(
        self, reservation_id: str, project_id: str, size: Any, match: Match = TARGETED
    ) -> Any:
        self.made.add(reservation_id)
        return super().open_slots(reservation_id, self._project_id, size, match)


class ThreeHosts(NovaCloud):
    """The real Nova, with only the tests' hosts."""

    def hosts(self) -> list[DiscoveredResource]:
        return [drift_of for drift_of in super().hosts() if drift_of.external_id in HOSTS]


@pytest.fixture
def isolation() -> str:
    return "blazar"


@pytest.fixture
def conf(administrator: Account, isolation: str, tmp_path: Path) -> ConfigOpts:
    # A plugin may ask for more time; here it gets it at once.
    options = {
        **settings.options(administrator, isolation),
        "nova__server_delete_wait": "60",
    }
    path = write_config(tmp_path / "climate.conf", **options)
    made = config_registry.new()
    config_registry.load(made, "test", ["--config-file", str(path)])
    return made


@pytest.fixture
def hosts(conf: ConfigOpts, administrator: Account) -> Iterator[HostPlugin]:
    made = HostPlugin(conf, contextlib.nullcontext)
    made.cloud = ThreeHosts(conf, contextlib.nullcontext)
    there = {drift_of.external_id for drift_of in made.cloud.hosts()}
    if missing := set(HOSTS) - there:
        servers.absent("openstack", f"this cloud has no {', '.join(sorted(missing))}")
    traces.sweep(administrator.cloud, HOSTS)
    for host in HOSTS:
        made.enroll(host)
    yield made
    traces.sweep(administrator.cloud, HOSTS)


class TestInstancePluginOnNova(SlotContract):
    example: ClassVar = {
        "amount": 6,
        "vcpus": 1,
        "memory_mb": 64,
        "disk_gb": 1,
        "affinity": None,
        "resource_properties": "",
    }
    amounts: ClassVar = {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1}

    @pytest.fixture
    def plugin(
        self, conf: ConfigOpts, administrator: Account, hosts: HostPlugin
    ) -> Iterator[InstancePlugin]:
        self.administrator = administrator
        made = InstancePlugin(conf, contextlib.nullcontext)
        made.cloud = FragileNova(conf, administrator.project_id)
        yield made
        nova(made).left = None
        for id_ in nova(made).made:
            nova(made).close_slots(id_)
            for host in HOSTS:
                nova(made).clear_host(id_, host)
            nova(made).delete_slots(id_)

    def state(self, plugin: ResourcePlugin) -> Any:
        """Return the state of the tests' hosts and what remains of their reservations."""
        cloud, mine = self.administrator.cloud, nova(plugin).made
        return {
            "aggregates": traces.aggregates(cloud, HOSTS),
            "empty": sorted(traces.aggregate_names(cloud) & mine),
            "flavors": {
                flavor.id: [
                    flavor.vcpus,
                    flavor.ram,
                    flavor.disk,
                    flavor.is_public,
                    flavor.extra_specs,
                ]
                for flavor in cloud.compute.flavors(is_public=None, get_extra_specs=True)
                if flavor.id in mine
            },
            "slots": {
                id_: [sorted(one.projects), dict(sorted(one.hosts.items()))]
                for id_, one in nova(plugin).slots().items()
                if id_ in mine
            },
            "classes": sorted(nova(plugin)._slots.reservations() & mine),
            "servers": len(traces.servers_on(cloud, HOSTS)),
            "held": traces.held(cloud, HOSTS),
        }

    def described(self, plugin: ResourcePlugin, mine: Reservation) -> Any:
        upper = mine.id.upper().replace("-", "_")
        return json.loads(json.dumps(super().described(plugin, mine)).replace(upper, "MINE"))

    @contextlib.contextmanager
    def failing_after(self, plugin: ResourcePlugin, effects: int) -> Iterator[None]:
        nova(plugin).left = effects
        yield
        nova(plugin).left = None

    def use(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        server = guests.boot(self.administrator, "contract", flavor_id=reservation.id)
        assert server.status == "ACTIVE", server.fault

    def sabotage(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        """Delete all but the servers."""
        compute = self.administrator.cloud.compute
        for drift_of in compute.aggregates():
            if drift_of.name == reservation.id:
                for host in drift_of.hosts:
                    compute.remove_host_from_aggregate(drift_of, host)
                compute.delete_aggregate(drift_of)
        compute.delete_flavor(reservation.id)

    def test_the_audit_finds_only_remains_of_reservations(self, plugin: ResourcePlugin) -> None:
        before, left, theirs = self.state(plugin), self.reservation(plugin), str(uuid.uuid4())
        compute = self.administrator.cloud.compute
        plugin.start(lease(left), left, self.granted(plugin, 2))
        shape = {"vcpus": 1, "ram": 64, "disk": 1}
        compute.create_flavor(id=theirs, name=f"reservation:{theirs}", is_public=False, **shape)
        nova(plugin)._slots.ensure_class(theirs)
        try:
            assert theirs not in self.drift_of(plugin)
            self.use(plugin, left)
            assert self.drift_of(plugin)[left.id].repair is None
            guests.remove(self.administrator.cloud, *nova(plugin).slot_servers(left.id))
            repair = self.drift_of(plugin)[left.id].repair
            assert repair is not None
            repair()
            assert self.state(plugin) == before
        finally:
            traces.remove_slots(self.administrator.cloud, theirs)
        nova(plugin)._slots.ensure_class(left.id)
        repair = self.drift_of(plugin)[left.id].repair
        assert repair is not None
        repair()
        assert self.state(plugin) == before

    def drift_of(self, plugin: ResourcePlugin) -> dict[str | None, Drift]:
        """Return what an audit without leases finds, by reservation."""
        return {
            drift.reservation_id: drift for drift in plugin.audit(lambda: ExpectedState((), (), ()))
        }

    def test_a_host_reserved_as_a_whole_is_not_shared(
        self, plugin: ResourcePlugin, hosts: HostPlugin
    ) -> None:
        """The end of a whole reservation, which may be late, deletes every server on the host."""
        mine, given = self.reservation(plugin), self.granted(plugin, 2)
        whole = replace(mine, id=str(uuid.uuid4()))
        hosts.start(lease(whole), whole, given[:1])
        with pytest.raises(HostOccupied, match=f"still in aggregate {whole.id}"):
            plugin.start(lease(mine), mine, given)
        assert dict(nova(plugin).slots()[mine.id].hosts) == {given[1].external_id: 2}
        hosts.end(lease(whole), whole, given[:1])
        plugin.start(lease(mine), mine, given[:1])
        self.use(plugin, mine)
        with pytest.raises(HostOccupied, match="which should be free"):
            hosts.start(lease(whole), whole, given[:1])
        hosts.end(lease(whole), whole, ())


class TestOpenReservationOnNova(TestInstancePluginOnNova):
    """Servers with an ordinary flavor use the slots; nothing else does."""

    example: ClassVar = {
        **TestInstancePluginOnNova.example,
        "memory_mb": 512,
        "match": "open",
    }
    amounts: ClassVar = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}

    @pytest.fixture
    def isolation(self) -> str:
        return "tenancy"

    def use(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        flavor, _ = guests.smallest(self.administrator.cloud)
        [host, *_] = nova(plugin).slot_hosts(reservation.id)
        server = guests.boot(self.administrator, "contract", flavor_id=flavor, host=host)
        assert server.status == "ACTIVE", server.fault


def nova(plugin: ResourcePlugin) -> FragileNova:
    assert isinstance(plugin, InstancePlugin)
    assert isinstance(plugin.cloud, FragileNova)
    return plugin.cloud
