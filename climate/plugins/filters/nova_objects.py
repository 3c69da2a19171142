"""Makes the objects that filters of Nova read: ``HostState`` and ``RequestSpec``.

Nova is not a dependency of climate. This module imports it when a ``NovaObjects`` is made.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from climate.core.errors import InvalidInput
from climate.core.matching.requirement import Layout, RequestedFlavor, Requirement
from climate.core.matching.selection import Candidate
from climate.plugins.filters import host_facts

LOG = logging.getLogger(__name__)
# The rules of server groups that correspond to the layouts of a reservation.
_POLICIES = {Layout.TOGETHER: "affinity", Layout.APART: "anti-affinity"}
_NO_ID = "00000000-0000-0000-0000-000000000000"


class NovaObjects:
    """Makes Nova's objects with the classes of the installed Nova.

    ``config_files`` are read into Nova's own configuration, which the filters use. Raises
    ImportError if Nova is not installed, and errors of oslo.config if a file cannot be read.
    """

    def __init__(self, config_files: Sequence[str]) -> None:
        conf = import_module("nova.conf").CONF
        conf([], project="nova", default_config_files=list(config_files), default_config_dirs=[])
        # The clock with which filters compare the heartbeats of services.
        self._now: Any = import_module("oslo_utils.timeutils").utcnow
        self._objects: Any = import_module("nova.objects")
        self._objects.register_all()
        self._host_manager: Any = import_module("nova.scheduler.host_manager")
        self._exception: Any = import_module("nova.exception")
        self._pci_stats: Any = import_module("nova.pci.stats")
        self._pools: Any = import_module("nova.objects.pci_device_pool")
        self._pci_request: Any = import_module("nova.pci.request")
        self._hardware: Any = import_module("nova.virt.hardware")

    def host_state(self, candidate: Candidate) -> Any:  # noqa: ANN401 - Nova has no types
        """Return a new ``HostState`` of a candidate, which filters may change."""
        resource = candidate.resource
        host, _, node = resource.external_id.partition("/")
        node = node or resource.properties.get("hypervisor_hostname") or host
        state = self._host_manager.HostState(host, node, _NO_ID)
        for name, value in host_facts.attributes(candidate).items():
            setattr(state, name, value)
        state.service = self._service(candidate, host)
        state.updated = self._now(with_timezone=True)
        state.aggregates = [self._aggregate(candidate, host)]
        state.metrics = self._objects.MonitorMetricList(objects=[])
        state.numa_topology = self._numa_topology(resource.properties)
        state.pci_stats = self._pci(resource.properties, state.numa_topology)
        # climate has no allocation candidates of Placement: one stands for the whole host.
        state.allocation_candidates = [{"mappings": {}}]
        return state

    def request_spec(self, requirement: Requirement) -> Any:  # noqa: ANN401 - Nova has no types
        """Return a ``RequestSpec`` with the request of a reservation.

        Raises InvalidInput if Nova rejects the extra specs, for example an unknown PCI alias.
        """
        requested = requirement.flavor or RequestedFlavor()
        flavor = self._flavor(requested)
        image = self._objects.ImageMeta(properties=self._objects.ImageMetaProps())
        if requested.image:
            image.id = requested.image
        try:
            topology = self._hardware.numa_get_constraints(flavor, image)
            devices = self._pci_request.get_pci_requests_from_flavor(flavor)
        except self._exception.NovaException as error:
            raise InvalidInput(f"Nova rejects the extra specs of the flavor: {error}") from None
        return self._objects.RequestSpec(
            project_id=requirement.project_id,
            user_id=None,
            flavor=flavor,
            image=image,
            numa_topology=topology,
            pci_requests=devices,
            num_instances=max(1, requirement.minimum),
            instance_group=self._group(requirement.layout),
            **self._defaults(),
        )

    def _defaults(self) -> dict[str, Any]:
        """Return the fields of a ``RequestSpec`` that climate does not know."""
        return {
            "availability_zone": None,
            "ignore_hosts": None,
            "force_hosts": None,
            "force_nodes": None,
            "requested_destination": None,
            "retry": None,
            "limits": self._objects.SchedulerLimits(),
            "scheduler_hints": {},
            "instance_uuid": _NO_ID,
            "is_bfv": False,
            "requested_resources": [],
        }

    def _flavor(self, requested: RequestedFlavor) -> Any:  # noqa: ANN401 - Nova has no types
        shape = requested.shape
        return self._objects.Flavor(
            id=0,
            flavorid=requested.name,
            name=requested.name,
            vcpus=shape.get("vcpus", 0),
            memory_mb=shape.get("ram", 0),
            root_gb=shape.get("disk", 0),
            ephemeral_gb=shape.get("ephemeral", 0),
            swap=shape.get("swap", 0),
            rxtx_factor=1.0,
            vcpu_weight=0,
            disabled=False,
            is_public=True,
            description=None,
            extra_specs=dict(requested.extra_specs),
        )

    def _group(self, layout: Layout) -> Any:  # noqa: ANN401 - Nova has no types
        if layout not in _POLICIES:
            return None
        # climate itself keeps units together or apart, so that no host is excluded here.
        policy = _POLICIES[layout]
        return self._objects.InstanceGroup(
            uuid=_NO_ID, policy=policy, policies=[policy], rules={}, members=[], hosts=[]
        )

    def _service(self, candidate: Candidate, host: str) -> Any:  # noqa: ANN401 - Nova has no types
        now, is_down = self._now(with_timezone=True), not candidate.resource.reservable
        return self._host_manager.ReadOnlyDict(
            {
                "host": host,
                "binary": "nova-compute",
                "topic": "compute",
                "disabled": is_down,
                "disabled_reason": "climate: not reservable" if is_down else None,
                "forced_down": False,
                "report_count": 1,
                "last_seen_up": now,
                "created_at": now,
                "updated_at": now,
            }
        )

    def _aggregate(self, candidate: Candidate, host: str) -> Any:  # noqa: ANN401 - Nova has no types
        metadata = host_facts.aggregate_metadata(candidate)
        aggregate = self._objects.Aggregate(name="climate", hosts=[host])
        aggregate.metadata = metadata
        return aggregate

    def _numa_topology(self, properties: Mapping[str, str]) -> Any:  # noqa: ANN401 - Nova's
        topology = host_facts.decoded(properties, host_facts.NUMA_TOPOLOGY)
        kind = self._objects.NUMATopology
        make = partial(kind.obj_from_db_obj, json.dumps(topology)) if topology else None
        return _made(host_facts.NUMA_TOPOLOGY, make)

    def _pci(self, properties: Mapping[str, str], topology: Any) -> Any:  # noqa: ANN401 - Nova's
        pools = host_facts.decoded(properties, host_facts.PCI_POOLS)
        make = partial(self._pools.from_pci_stats, pools) if pools else None
        stats = _made(host_facts.PCI_POOLS, make)
        return self._pci_stats.PciDeviceStats(topology, stats=stats)


def _made(name: str, make: Callable[[], Any] | None) -> Any:  # noqa: ANN401 - Nova's
    """Return the object that Nova makes of a property; None if it is missing or malformed."""
    try:
        return make() if make else None
    except Exception as error:  # noqa: BLE001 - Nova may raise anything for malformed data
        LOG.warning("Nova cannot read the property %s of a host: %s", name, error)
        return None
