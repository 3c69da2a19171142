"""A small stand-in for the package nova: the names that climate's adapter and filters import.

``install`` puts it into ``sys.modules``. ``Bag`` stands for all of Nova's objects.
"""

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest


class Bag:
    """An object with the attributes that its constructor receives."""

    def __init__(self, *_args: Any, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class HostState(Bag):
    """Nova's ``HostState``, with the values that climate does not set."""

    def __init__(self, host: str, node: str, cell_uuid: str) -> None:
        super().__init__(host=host, nodename=node, cell_uuid=cell_uuid, instances={}, limits={})


class BaseHostFilter:
    """The methods of Nova's class of this name."""

    run_filter_once_per_request = False

    def run_filter_for_index(self, index: int) -> bool:
        return not (self.run_filter_once_per_request and index > 0)

    def filter_all(self, hosts: list[Any], spec: Any) -> Iterator[Any]:
        return (host for host in hosts if self.host_passes(host, spec))

    def host_passes(self, host: Any, spec: Any) -> bool:
        raise NotImplementedError


def _no_requests(*_args: Any) -> None:
    return None


def _modules() -> dict[str, dict[str, Any]]:
    kinds = ("Aggregate", "Flavor", "ImageMeta", "ImageMetaProps", "InstanceGroup")
    more = ("MonitorMetricList", "NUMATopology", "RequestSpec", "SchedulerLimits")
    return {
        "nova": {},
        "nova.conf": {"CONF": _no_conf},
        "nova.exception": {"NovaException": LookupError},
        "nova.objects": {"register_all": _no_requests, **dict.fromkeys((*kinds, *more), Bag)},
        "nova.objects.pci_device_pool": {"from_pci_stats": _no_requests},
        "nova.pci": {},
        "nova.pci.request": {"get_pci_requests_from_flavor": _no_requests},
        "nova.pci.stats": {"PciDeviceStats": Bag},
        "nova.scheduler": {},
        "nova.scheduler.filters": {"BaseHostFilter": BaseHostFilter},
        "nova.scheduler.host_manager": {"HostState": HostState, "ReadOnlyDict": dict},
        "nova.virt": {},
        "nova.virt.hardware": {"numa_get_constraints": _no_requests},
    }


def _no_conf(*_args: Any, **_options: Any) -> None:
    return None


def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Install the stand-in; return a function that makes filter classes importable.

    The function returns the values of the option ``[selection] nova_filters`` for the classes.
    """
    for name, content in _modules().items():
        module = ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)

    def publish(*filters: type) -> list[str]:
        module = ModuleType("site_filters")
        module.__dict__.update({each.__name__: each for each in filters})
        monkeypatch.setitem(sys.modules, "site_filters", module)
        return [f"site_filters.{each.__name__}" for each in filters]

    return publish
