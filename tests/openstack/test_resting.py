"""Hosts that are to be without power, on a real Nova: out of service, then looked at, and back."""

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
    """Return the cloud, of which one host is free and in service."""
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
    return next(one for one in nova.hosts() if one.external_id == HOST)


def test_a_host_that_rests_is_out_of_service_and_bookable(
    nova: NovaCloud, administrator: Account
) -> None:
    for _ in range(2):
        nova.disable_service(HOST)
        told = service(administrator)
        assert (told.status, told.disabled_reason) == ("disabled", REST)
        assert (seen(nova).usable, seen(nova).disabled) == (True, False)
    for _ in range(2):
        nova.enable_service(HOST)
        assert service(administrator).status == "enabled"


def test_what_an_operator_disabled_stays_so(nova: NovaCloud, administrator: Account) -> None:
    cloud = administrator.cloud.compute
    cloud.disable_service(service(administrator), disabled_reason="a disk is broken")
    with pytest.raises(Conflict, match="a disk is broken"):
        nova.disable_service(HOST)
    assert seen(nova).disabled
    nova.enable_service(HOST)
    assert service(administrator).status == "disabled"


def test_only_a_free_host_rests(nova: NovaCloud, administrator: Account) -> None:
    nova.withdraw(HOST)
    for host in (HOST, f"{settings.SERVICE}/{settings.NODES[0]}"):
        with pytest.raises(Conflict):
            nova.disable_service(host)
    assert service(administrator).status == "enabled"


def test_a_host_with_a_server_on_it_is_told(
    nova: NovaCloud, administrator: Account, boot: Boot
) -> None:
    nova.withdraw(HOST)
    server = boot(administrator, "early", availability_zone=f"nova:{HOST}")
    assert server.status == "ACTIVE"
    nova.enroll(HOST)
    with pytest.raises(Conflict, match=server.id):
        nova.disable_service(HOST)
    nova.enable_service(HOST)
    assert service(administrator).status == "enabled"
