"""Leases get hosts that filters of Nova and of an operator accept."""

import sys
from functools import partial
from pathlib import Path

import pytest
from blazarclient.exception import BlazarClientException

from tests.openstack import deployment, settings
from tests.openstack.accounts import Project
from tests.openstack.conftest import Deploy
from tests.openstack.landing import Lander
from tests.openstack.testbed import layout
from tests.support import process
from tests.support.service import host_reservation

CLOSED, OPEN = HOSTS = settings.HOSTS[:2]
_OWN = [
    "affinity_filter.ServerGroupAffinityFilter",
    "affinity_filter.ServerGroupAntiAffinityFilter",
    "aggregate_instance_extra_specs.AggregateInstanceExtraSpecsFilter",
    "aggregate_multitenancy_isolation.AggregateMultiTenancyIsolation",
    "compute_capabilities_filter.ComputeCapabilitiesFilter",
    "compute_filter.ComputeFilter",
    "image_props_filter.ImagePropertiesFilter",
    "io_ops_filter.IoOpsFilter",
    "num_instances_filter.NumInstancesFilter",
    "numa_topology_filter.NUMATopologyFilter",
    "pci_passthrough_filter.PciPassthroughFilter",
]
_DOWNSTREAM = ["RackFilter", "FirstProjectFilter"]
FILTERS = [
    *(f"nova.scheduler.filters.{name}" for name in _OWN),
    *(f"tests.openstack.downstream_filters.{name}" for name in _DOWNSTREAM),
]


def _look_last_in(folder: str) -> None:
    sys.path.append(folder)


@pytest.fixture
def with_nova(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the programs of climate import the testbed's Nova, after their own packages."""
    if not (layout.CONF / "nova.conf").exists():
        pytest.skip("OS_* names another cloud than the testbed, whose package nova is needed")
    (nova,) = layout.VENV.glob("lib/python*/site-packages/nova")
    prepare = partial(_look_last_in, str(nova.parent))
    monkeypatch.setattr(deployment, "running", partial(process.running, prepare=prepare))


@pytest.mark.usefixtures("with_nova")
def test_a_lease_gets_the_hosts_that_all_filters_accept(
    deploy: Deploy, lander: Lander, lab: Project, others: Project, tmp_path: Path
) -> None:
    aliases = tmp_path / "nova.conf"
    aliases.write_text("[filter_scheduler]\nmax_instances_per_host = 10\n")
    service = deploy(
        "blazar",
        HOSTS,
        selection__nova_filters=",".join(FILTERS),
        selection__nova_config_files=aliases,
    )
    service.start_manager()
    service.register(CLOSED, rack="1 closed")
    service.register(OPEN, rack="2")
    lease = service.start_lease(lab.member, host_reservation(1, 2, before_end=""))
    assert service.hosts_of(lease["id"]) == [OPEN]
    assert lander.boot(lab.member, lease["reservations"][0]["id"]) == OPEN
    service.end(lab.member, lease["id"])
    with pytest.raises(BlazarClientException, match="Not enough hosts"):
        service.reserve(others.member)
    service.end(lab.member, service.start_lease(lab.member, host_reservation(1, 1))["id"])
