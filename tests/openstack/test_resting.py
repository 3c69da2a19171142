"""Power saving on a real Nova: disable a host's service, check the host, and enable it again."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from climate.config import registry as config_registry
from climate.core.errors import Conflict
from climate.plugins.base import DiscoveredResource
from climate.plugins.hosts.nova import NovaCloud
from climate.plugins.hosts.nova_services import REST
from tests.openstack import settings
from tests.openstack.accounts import Account
from tests.openstack.conftest import Boot
from tests.support.process import write_config

HOST = settings.HOSTS[-1]


@pytest.fixture
def nova(administrator: Account, tmp_path: Path) -> Iterator[NovaCloud]:
    """Return the cloud with one free, enabled host."""
    options = settings.options(administrator, "tenancy")
    conf = config_registry.new()
    path = write_config(tmp_path / "climate.conf", **options)
    config_registry.load(conf, "test", ["--config-file", str(path)])
    made = NovaCloud(conf, contextlib.nullcontext)
    made.enroll(HOST)
    yield made
    made.withdraw(HOST)
    enable(administrator)


def service(administrator: Account) -> Any:
    found = administrator.cloud.compute.services(binary="nova-compute", host=HOST)
    return next(iter(found))


def enable(administrator: Account) -> None:
    administrator.cloud.compute.enable_service(service(administrator))


def seen(nova: NovaCloud) -> DiscoveredResource:
    return next(host for host in nova.hosts() if host.external_id == HOST)


def test_a_host_without_power_is_disabled_and_bookable(
    nova: NovaCloud, administrator: Account
) -> None:
    for _ in range(2):
        nova.disable_service(HOST)
        shown = service(administrator)
        assert (shown.status, shown.disabled_reason) == ("disabled", REST)
        assert (seen(nova).usable, seen(nova).disabled) == (True, False)
    for _ in range(2):
        nova.enable_service(HOST)
        assert service(administrator).status == "enabled"


def test_a_service_that_an_operator_disabled_stays_disabled(
    nova: NovaCloud, administrator: Account
) -> None:
    cloud = administrator.cloud.compute
    cloud.disable_service(service(administrator), disabled_reason="a disk is broken")
    with pytest.raises(Conflict, match="a disk is broken"):
        nova.disable_service(HOST)
    assert seen(nova).disabled
    nova.enable_service(HOST)
    assert service(administrator).status == "disabled"


def test_only_a_free_host_is_disabled(nova: NovaCloud, administrator: Account) -> None:
    nova.withdraw(HOST)
    for host in (HOST, f"{settings.SERVICE}/{settings.NODES[0]}"):
        with pytest.raises(Conflict):
            nova.disable_service(host)
    assert service(administrator).status == "enabled"


def test_reports_a_host_with_a_server(nova: NovaCloud, administrator: Account, boot: Boot) -> None:
    nova.withdraw(HOST)
    server = boot(administrator, "early", availability_zone=f"nova:{HOST}")
    assert server.status == "ACTIVE"
    nova.enroll(HOST)
    with pytest.raises(Conflict, match=server.id):
        nova.disable_service(HOST)
    nova.enable_service(HOST)
    assert service(administrator).status == "enabled"
