"""The volume plugin keeps the contract on a real Cinder, even if a call is interrupted."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from keystoneauth1.session import Session
from oslo_config.cfg import ConfigOpts

from climate.clock import SystemClock
from climate.config import registry as config_registry
from climate.core.lease.model import Granted, Lease, Reservation
from climate.plugins.base import NotYet, ResourcePlugin
from climate.plugins.openstack import session as openstack_session
from climate.plugins.volumes.cinder import MARK, Cinder, CinderVolumes
from climate.plugins.volumes.cloud import ReservedType, VolumeType
from climate.plugins.volumes.plugin import VolumePlugin
from tests.openstack import settings
from tests.openstack.accounts import Account
from tests.openstack.storage import Base, temporary_volume_type
from tests.plugins.contract import Interrupted, PluginContract, resources
from tests.support.process import write_config

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


class FragileCinder(Cinder):
    """The real Cinder, which fails when a test says so."""

    left: int | None = None

    def send(self, method: str, *arguments: Any, **options: Any) -> Any:
        if method != "GET":
            if self.left == 0:
                raise Interrupted(method)
            if self.left is not None:
                self.left -= 1
        return super().send(method, *arguments, **options)


class OurVolumes(CinderVolumes):
    """Volumes of the tests' own type; the administrator creates them, without a trust."""

    def __init__(self, conf: ConfigOpts, base: Base, session: Session) -> None:
        super().__init__(conf, SystemClock())
        self.cinder: FragileCinder = FragileCinder(conf, session)
        self._base = base

    def types(self) -> Sequence[VolumeType]:
        return [type_ for type_ in super().types() if type_.id == self._base.id]

    def create(self, _lease: Lease, room: ReservedType, name: str, size: int) -> str:
        wanted = {"name": name, "size": size, "volume_type": room.name}
        body = {"volume": {**wanted, "metadata": {MARK: room.reservation_id}}}
        return str(self.cinder.send("POST", "volumes", body).json()["volume"]["id"])


class PatientPlugin(VolumePlugin):
    """The plugin as a manager calls it: again while it raises NotYet."""

    def start(self, *arguments: Any) -> Any:
        return _patiently(super().start, *arguments)

    def end(self, *arguments: Any) -> None:
        _patiently(super().end, *arguments)


def _patiently(call: Any, *arguments: Any) -> Any:
    for _ in range(100):
        try:
            return call(*arguments)
        except NotYet:
            time.sleep(0.2)
    return call(*arguments)


@pytest.fixture(scope="module")
def base(administrator: Account) -> Iterator[Base]:
    with temporary_volume_type(administrator.cloud) as made:
        yield made


class TestVolumePluginOnCinder(PluginContract):
    example: ClassVar = {"volume_type": "any", "amount": 2, "size": 1}

    @pytest.fixture
    def plugin(self, administrator: Account, base: Base, tmp_path: Path) -> Iterator[VolumePlugin]:
        path = write_config(tmp_path / "climate.conf", **settings.options(administrator, "blazar"))
        conf = config_registry.new()
        config_registry.load(conf, "test", ["--config-file", str(path)])
        made = PatientPlugin(conf, contextlib.nullcontext, SystemClock())
        volumes = OurVolumes(conf, base, openstack_session.make_session(conf))
        made.cloud, self.base = volumes, base
        self.__class__.example = {**self.example, "volume_type": base.name}
        yield made
        base.clear()

    def name(self, found: Any) -> str:
        return str(found.properties["name"])

    def granted(self, plugin: ResourcePlugin, count: int) -> Sequence[Granted]:
        """Return each volume's share of the type as a separate grant."""
        [base] = resources(plugin, 1)
        return [replace(base, amounts={"DISK_GB": 1, "VOLUMES": 1})] * count

    def state(self, plugin: ResourcePlugin) -> Any:
        quota = self.base.quota("lab")
        return {
            name: [
                one["description"],
                one["extra_specs"],
                one["is_public"],
                self.base.access(one["id"]),
                [quota[f"{what}_{name}"] for what in ("volumes", "gigabytes")],
                sorted(
                    [found["size"], found["status"], found["metadata"]]
                    for found in self.base.volumes(name)
                ),
            ]
            for name, one in sorted(self.base.types().items())
        }

    @contextlib.contextmanager
    def failing_after(self, plugin: ResourcePlugin, effects: int) -> Iterator[None]:
        cinder = plugin.cloud.cinder  # type: ignore[attr-defined]
        cinder.left = effects
        yield
        cinder.left = None

    def use(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        """Take a snapshot of the first."""
        found = self.base.volumes(f"reservation:{reservation.id}")
        for item in found[:1]:
            snapshot = self.base.cloud.block_storage.create_snapshot(volume_id=item["id"])
            self.base.cloud.block_storage.wait_for_status(snapshot, interval=1)

    def sabotage(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        self.base.clear()
