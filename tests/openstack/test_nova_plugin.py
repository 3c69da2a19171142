"""The host plugin keeps the contract on a real Nova: services in both modes, and single nodes."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from oslo_config.cfg import ConfigOpts

from climate.config import registry as config_registry
from climate.core.lease.model import Reservation
from climate.plugins.base import DiscoveredResource, ResourcePlugin
from climate.plugins.hosts.nova import NovaCloud
from climate.plugins.hosts.nova_services import is_node
from climate.plugins.hosts.plugin import HostPlugin
from tests.openstack import guests, settings
from tests.openstack.accounts import Account
from tests.plugins.contract import Interrupted, PluginContract
from tests.support import servers
from tests.support.process import write_config

# Each is dozens of starts and ends, interrupted one step later each time.
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]

# Hosts of these tests only; on another cloud, settings name three empty hosts.
HOSTS = os.environ.get("CLIMATE_TEST_HOSTS", "fake01,fake02,fake03").split(",")
NODES = os.environ.get("CLIMATE_TEST_NODES", "multi01/bm-01,multi01/bm-02,multi01/bm-03").split(",")


class FragileNova(NovaCloud):
    """The real Nova with only the tests' hosts, which fails when a test says so."""

    left: int | None = None

    def __init__(self, conf: ConfigOpts, project_id: str, mine: Sequence[str]) -> None:
        super().__init__(conf, contextlib.nullcontext)
        self.mine = mine
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

    def hosts(self) -> list[DiscoveredResource]:
        return [found for found in super().hosts() if found.external_id in self.mine]

    def ensure_pool(self, pool: str, project_id: str, *, is_first: bool = False) -> None:
        """Create the pool for the user who boots servers in this test."""
        self.made.add(pool)
        super().ensure_pool(pool, self._project_id, is_first=is_first)


@pytest.fixture(
    params=[("blazar", HOSTS), ("tenancy", HOSTS), ("tenancy", NODES)],
    ids=["blazar", "tenancy", "nodes"],
)
def case(request: pytest.FixtureRequest) -> tuple[str, list[str]]:
    """Return a mode of isolation, and the hosts to test it on."""
    mode, hosts = request.param
    return mode, hosts


@pytest.fixture
def conf(case: tuple[str, list[str]], administrator: Account, tmp_path: Path) -> ConfigOpts:
    # A plugin may ask for more time; here it gets it at once.
    options = {**settings.options(administrator, case[0]), "nova__server_delete_wait": "60"}
    path = write_config(tmp_path / "climate.conf", **options)
    made = config_registry.new()
    config_registry.load(made, "test", ["--config-file", str(path)])
    return made


class TestHostPluginOnNova(PluginContract):
    example: ClassVar = {
        "min": 1,
        "max": 3,
        "hypervisor_properties": "",
        "resource_properties": "",
        "before_end": "",
    }

    @pytest.fixture
    def plugin(
        self, conf: ConfigOpts, administrator: Account, case: tuple[str, list[str]]
    ) -> Iterator[HostPlugin]:
        self.administrator = administrator
        self.mode, hosts = case
        made = HostPlugin(conf, contextlib.nullcontext)
        made.cloud = FragileNova(conf, administrator.project_id, hosts)
        there = {found.external_id for found in made.cloud.hosts()}
        if missing := set(hosts) - there:
            servers.absent("openstack", f"this cloud has no {', '.join(sorted(missing))}")
        _release_hosts(made, administrator)
        for host in hosts:
            made.enroll(host)
        yield made
        _release_hosts(made, administrator)

    def state(self, plugin: ResourcePlugin) -> Any:
        """Return the state of the tests' hosts and of all pools."""
        cloud, mine, pools = self.administrator.cloud, set(nova(plugin).mine), nova(plugin).made
        classes = {
            item.name.lower().replace("_", "-") for item in cloud.placement.resource_classes()
        }
        return {
            "aggregates": {
                found.name: {
                    "hosts": sorted(set(found.hosts) & mine),
                    "zone": found.availability_zone,
                    "metadata": {
                        k: v for k, v in found.metadata.items() if k != "availability_zone"
                    },
                }
                for found in sorted(cloud.compute.aggregates(), key=lambda one: one.name)
                if set(found.hosts) & mine or found.name in pools
            },
            "pools": {
                name: pool.hosts for name, pool in nova(plugin).pools().items() if name in pools
            },
            "free": sorted(mine & set(nova(plugin).free_hosts())),
            "flavors": sorted(
                {flavor.id for flavor in cloud.compute.flavors(is_public=None)} & pools
            ),
            "classes": sorted(p for p in pools if f"custom-reservation-{p}" in classes),
            "servers": {host: len(nova(plugin).servers(host)) for host in sorted(mine)},
        }

    @contextlib.contextmanager
    def failing_after(self, plugin: ResourcePlugin, effects: int) -> Iterator[None]:
        nova(plugin).left = effects
        yield
        nova(plugin).left = None

    def use(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        host = nova(plugin).pool_hosts(reservation.id)[0]
        options: dict[str, Any] = {"availability_zone": f"nova:{host}"}
        if self.mode == "blazar":
            options["availability_zone"] = f"blazar_{reservation.id}:{host}"
            options["scheduler_hints"] = {"reservation": reservation.id}
        if is_node(host):
            options = {"flavor_id": reservation.id}
            # A server that fills a node is beyond the usual quota.
            self.administrator.cloud.set_compute_quotas(
                self.administrator.project_id, ram=-1, cores=-1
            )
        server = guests.boot(self.administrator, f"contract-{host.replace('/', '-')}", **options)
        assert server.status == "ACTIVE", server.fault

    def sabotage(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        for host in nova(plugin).pool_hosts(reservation.id):
            guests.remove(self.administrator.cloud, *nova(plugin).servers(host))
            nova(plugin).remove_host(reservation.id, host)
        nova(plugin).delete_pool(reservation.id)

    def name(self, found: DiscoveredResource) -> str:
        return found.properties["hypervisor_hostname"]


def nova(plugin: ResourcePlugin) -> FragileNova:
    assert isinstance(plugin, HostPlugin)
    assert isinstance(plugin.cloud, FragileNova)
    return plugin.cloud


def _release_hosts(plugin: HostPlugin, administrator: Account) -> None:
    """Release the hosts whatever a failed test left on them."""
    cloud = nova(plugin)
    cloud.left = None
    for name, pool in cloud.pools().items():
        if set(pool.hosts) <= set(cloud.mine):
            for host in pool.hosts:
                cloud.delete_servers(name, host)
                cloud.remove_host(name, host)
            cloud.delete_pool(name)
    for host in cloud.mine:
        guests.remove(administrator.cloud, *cloud.servers(host))
        cloud.withdraw(host)
