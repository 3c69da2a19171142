"""The host plugin keeps the contract on a real Nova, in both modes of isolation.

Among other things: a start or an end that is interrupted before any one of its changes of the
cloud is completed by the next, and leaves the same behind as an undisturbed one.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from openstack.connection import Connection
from oslo_config.cfg import ConfigOpts

from climate import config
from climate.core.lease import Reservation
from climate.plugins.base import Found, ResourcePlugin
from climate.plugins.host import HostPlugin
from climate.plugins.nova import NovaCloud
from tests.contract.plugin import Interrupted, PluginContract
from tests.openstack import guests, settings
from tests.openstack.accounts import Account
from tests.process import write_config

# Nobody else touches these; a real cloud names three of its own, empty ones.
HOSTS = os.environ.get("CLIMATE_TEST_HOSTS", "fake01,fake02,fake03").split(",")


class FragileNova(NovaCloud):
    """The real Nova, of which only our hosts are seen, and which can be told when to fail."""

    left: int | None = None

    def __init__(self, conf: ConfigOpts, project_id: str) -> None:
        super().__init__(conf)
        self._project_id = project_id
        send = self._session.request

        def request(url: str, method: str, **options: Any) -> Any:
            if method != "GET" and options.get("authenticated") is not False:
                self._count(f"{method} {url}")
            return send(url, method, **options)

        self._session.request = request

    def _count(self, change: str) -> None:
        if self.left == 0:
            raise Interrupted(change)
        if self.left is not None:
            self.left -= 1

    def hosts(self) -> list[Found]:
        return [found for found in super().hosts() if found.external_id in HOSTS]

    def ensure_pool(self, pool: str, project_id: str) -> None:
        """Make the pool for the one who boots servers in this test."""
        super().ensure_pool(pool, self._project_id)


@pytest.fixture(params=["blazar", "tenancy"])
def conf(request: pytest.FixtureRequest, administrator: Account, tmp_path: Path) -> ConfigOpts:
    options = settings.options(administrator, request.param)
    path = write_config(tmp_path / "climate.conf", **options)
    made = config.new()
    config.load(made, "test", ["--config-file", str(path)])
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
        self, conf: ConfigOpts, administrator: Account, cloud: Connection
    ) -> Iterator[HostPlugin]:
        self.administrator, self.mode = administrator, conf.nova.isolation
        made = HostPlugin(conf)
        made.cloud = FragileNova(conf, administrator.project_id)
        for host in HOSTS:
            made.enroll(host)
        yield made
        _tidy(cloud, made, conf.nova.aggregate_freepool_name)

    def state(self, plugin: ResourcePlugin) -> Any:
        compute = self.administrator.cloud.compute
        return {
            "aggregates": {
                found.name: {
                    "hosts": sorted(set(found.hosts) & set(HOSTS)),
                    "zone": found.availability_zone,
                    "metadata": {
                        k: v for k, v in found.metadata.items() if k[:12] != "availability"
                    },
                }
                for found in sorted(compute.aggregates(), key=lambda one: one.name)
                if set(found.hosts) & set(HOSTS) or "climate:reservation" in found.metadata
            },
            "servers": {host: len(nova(plugin).servers(host)) for host in HOSTS},
        }

    @contextlib.contextmanager
    def failing_after(self, plugin: ResourcePlugin, effects: int) -> Iterator[None]:
        nova(plugin).left = effects
        yield
        nova(plugin).left = None

    def use(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        host = nova(plugin).pool_hosts(reservation.id)[0]
        zone = f"blazar_{reservation.id}:{host}" if self.mode == "blazar" else f"nova:{host}"
        server = guests.boot(
            self.administrator,
            f"contract-{host}",
            availability_zone=zone,
            scheduler_hints={"reservation": reservation.id},
        )
        assert server.status == "ACTIVE", server.fault

    def sabotage(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        for host in nova(plugin).pool_hosts(reservation.id):
            guests.remove(self.administrator.cloud, *nova(plugin).servers(host))
            nova(plugin).remove_host(reservation.id, host)
        nova(plugin).delete_pool(reservation.id)

    def name(self, found: Found) -> str:
        return found.properties["hypervisor_hostname"]


def nova(plugin: ResourcePlugin) -> FragileNova:
    assert isinstance(plugin, HostPlugin)
    assert isinstance(plugin.cloud, FragileNova)
    return plugin.cloud


def _tidy(cloud: Connection, plugin: HostPlugin, free: str) -> None:
    """Leave the hosts as they were found, whatever a failed test left on them."""
    nova(plugin).left = None
    guests.remove(cloud, *(server for host in HOSTS for server in nova(plugin).servers(host)))
    for found in cloud.compute.aggregates():
        for host in set(found.hosts or ()) & set(HOSTS):
            cloud.compute.remove_host_from_aggregate(found, host)
        if "climate:reservation" in found.metadata:
            cloud.compute.delete_aggregate(found)
    made = next((found for found in cloud.compute.aggregates() if found.name == free), None)
    if made is not None and not made.hosts and free != "freepool":
        cloud.compute.delete_aggregate(made)
