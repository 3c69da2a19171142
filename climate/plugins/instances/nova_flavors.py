"""The private flavors of reserved instances, each with the id of its reservation.

A flavor takes one of its reservation's resource class besides what an instance takes, so servers of
it are where that is to be had, and as many as there are slots.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from novaclient import exceptions as refusals

from climate.core.matching.extra_specs import RESOURCES
from climate.plugins.instances.cloud import Flavor, Size
from climate.plugins.openstack.placement_reservations import reservation_class

# What tells our flavors from Blazar's, which have the same names.
MARK = "climate:slots"
_NAME = "reservation:"
_PAGE = 500
_POLICY = "hw:cpu_policy"


def flavor_name(reservation_id: str) -> str:
    """Return the name of a reservation's flavor."""
    return f"{_NAME}{reservation_id}"


class ReservedFlavors:
    """Makes, opens and removes them. Raises what novaclient raises."""

    def __init__(self, nova: Any) -> None:  # noqa: ANN401 - novaclient's
        """Work with this way into Nova."""
        self._nova = nova

    def find(self, flavor_id: str, project_id: str) -> Flavor | None:
        """Return any flavor that a project may use; None if there is none of this id."""
        try:
            found = self._nova.flavors.get(flavor_id)
            if not found.is_public and project_id not in self.projects(flavor_id):
                return None
            return Flavor(
                id=found.id,
                name=found.name,
                vcpus=found.vcpus,
                ram=found.ram,
                disk=found.disk,
                ephemeral=found.ephemeral,
                swap=found.swap or 0,
                extra_specs=dict(found.get_keys()),
            )
        except refusals.NotFound:
            return None

    def ensure(self, reservation_id: str, size: Size) -> None:
        """Make a reservation's flavor, which nobody can use yet."""
        try:
            flavor = self._nova.flavors.get(reservation_id)
        except refusals.NotFound:
            flavor = self._make(reservation_id, size)
        present, wanted = flavor.get_keys(), extra_specs(reservation_id, size)
        if missing := dict(wanted.items() - present.items()):
            flavor.set_keys(missing)

    def _make(self, reservation_id: str, size: Size) -> Any:  # noqa: ANN401 - novaclient's
        name, shape = flavor_name(reservation_id), flavor_shape(size)
        with suppress(refusals.Conflict):  # somebody else was first
            self._nova.flavors.create(name, **shape, flavorid=reservation_id, is_public=False)
        return self._nova.flavors.get(reservation_id)

    def open(self, reservation_id: str, project_id: str) -> None:
        """Let a project use the flavor, and nobody else."""
        present = self.projects(reservation_id)
        for other in present - {project_id}:
            self._nova.flavor_access.remove_tenant_access(reservation_id, other)
        if project_id not in present:
            with suppress(refusals.Conflict):
                self._nova.flavor_access.add_tenant_access(reservation_id, project_id)

    def close(self, reservation_id: str) -> None:
        """Let nobody use the flavor; fine if it is gone."""
        for project in self.projects(reservation_id):
            with suppress(refusals.NotFound):
                self._nova.flavor_access.remove_tenant_access(reservation_id, project)

    def projects(self, reservation_id: str) -> set[str]:
        """Return who may use the flavor; nobody if it is gone."""
        try:
            return {one.tenant_id for one in self._nova.flavor_access.list(flavor=reservation_id)}
        except refusals.NotFound:
            return set()

    def servers(self, reservation_id: str) -> list[str]:
        """Return the servers of the flavor, of all projects; none if it is gone."""
        options = {"flavor": reservation_id, "all_tenants": True}
        return [one.id for one in self._nova.servers.list(search_opts=options, limit=-1)]

    def delete(self, reservation_id: str) -> None:
        """Remove the flavor; fine if it is gone."""
        with suppress(refusals.NotFound):
            self._nova.flavors.delete(reservation_id)

    def named(self) -> dict[str, Any]:
        """Return all flavors with names such as ours, Blazar's too, by id."""
        return {one.id: one for one in self._all() if one.name == flavor_name(one.id)}

    def _all(self) -> Iterator[Any]:
        page = self._nova.flavors.list(is_public=None, limit=_PAGE)
        while page:
            yield from page
            page = self._nova.flavors.list(is_public=None, limit=_PAGE, marker=page[-1].id)


def flavor_shape(size: Size) -> dict[str, int]:
    """Return the columns of a flavor for this size. Pure.

    Nova wants one virtual CPU and one MiB at least; what is not taken is set right by extra specs.
    """
    amounts = size.amounts
    made = {
        "vcpus": amounts.get("VCPU", 0) + amounts.get("PCPU", 0) or 1,
        "ram": amounts.get("MEMORY_MB", 0) or 1,
        "disk": amounts.get("DISK_GB", 0),
        "ephemeral": 0,
        "swap": 0,
    }
    return dict(size.shape) or made


def extra_specs(reservation_id: str, size: Size) -> dict[str, str]:
    """Return a flavor's extra specs: its own, and what makes it take a slot. Pure."""
    shape, own = flavor_shape(size), size.extra_specs
    said = {key.partition(":")[2] for key in own if key.startswith(RESOURCES[:-1])}
    taken = {
        "PCPU" if own.get(_POLICY) == "dedicated" else "VCPU": shape["vcpus"],
        "MEMORY_MB": shape["ram"],
        "DISK_GB": shape["disk"] + shape["ephemeral"] - (-shape["swap"] // 1024),
    }
    return {
        **own,
        **_corrections(size.amounts, taken, said),
        f"{RESOURCES}{reservation_class(reservation_id)}": "1",
        "aggregate_instance_extra_specs:reservation": reservation_id,
        MARK: reservation_id,
    }


def _corrections(
    amounts: Mapping[str, int], taken: Mapping[str, int], said: set[str]
) -> dict[str, str]:
    """Return what must be said as Nova would take something else. It takes no PCPU said twice."""
    return {
        f"{RESOURCES}{name}": str(amounts.get(name, 0))
        for name in sorted(amounts.keys() | taken.keys())
        if name not in said and amounts.get(name, 0) != taken.get(name, 0)
    }
