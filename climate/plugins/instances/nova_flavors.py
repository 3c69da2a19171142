"""The private flavors of reserved instances. The id of such a flavor is the reservation's id.

In addition to the amounts of an instance, a flavor requests one unit of its reservation's resource
class. So servers with the flavor can run only on hosts that have slots of the reservation, and
there cannot be more servers than slots.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from novaclient import exceptions as nova_errors

from climate.core.matching.extra_specs import RESOURCES
from climate.plugins.instances.cloud import Flavor, Size
from climate.plugins.openstack.placement_reservations import reservation_class

# The extra spec that distinguishes climate's flavors from Blazar's, which have the same names.
MARK = "climate:slots"
_NAME = "reservation:"
_PAGE = 500
_POLICY = "hw:cpu_policy"


def flavor_name(reservation_id: str) -> str:
    """Return the name of a reservation's flavor."""
    return f"{_NAME}{reservation_id}"


class ReservedFlavors:
    """Reads and changes the flavors of reservations in Nova. Raises novaclient's errors."""

    def __init__(self, nova: Any) -> None:  # noqa: ANN401 - novaclient's
        self._nova = nova

    def find(self, flavor_id: str, project_id: str) -> Flavor | None:
        """Return the flavor; None if it does not exist or the project has no access to it."""
        try:
            flavor = self._nova.flavors.get(flavor_id)
            if not flavor.is_public and project_id not in self.projects(flavor_id):
                return None
            return Flavor(
                id=flavor.id,
                name=flavor.name,
                vcpus=flavor.vcpus,
                ram=flavor.ram,
                disk=flavor.disk,
                ephemeral=flavor.ephemeral,
                swap=flavor.swap or 0,
                extra_specs=dict(flavor.get_keys()),
            )
        except nova_errors.NotFound:
            return None

    def ensure(self, reservation_id: str, size: Size) -> None:
        """Create the flavor of a reservation if it is missing, and set its missing extra specs.

        No project has access to a new flavor; ``open`` gives access.
        """
        try:
            flavor = self._nova.flavors.get(reservation_id)
        except nova_errors.NotFound:
            flavor = self._create(reservation_id, size)
        present, specs = flavor.get_keys(), extra_specs(reservation_id, size)
        if missing := dict(specs.items() - present.items()):
            flavor.set_keys(missing)

    def _create(self, reservation_id: str, size: Size) -> Any:  # noqa: ANN401 - novaclient's
        name, shape = flavor_name(reservation_id), flavor_shape(size)
        with suppress(nova_errors.Conflict):  # another process was first
            self._nova.flavors.create(name, **shape, flavorid=reservation_id, is_public=False)
        return self._nova.flavors.get(reservation_id)

    def open(self, reservation_id: str, project_id: str) -> None:
        """Give one project access to the flavor, and revoke the access of all others."""
        present = self.projects(reservation_id)
        for other in present - {project_id}:
            self._nova.flavor_access.remove_tenant_access(reservation_id, other)
        if project_id not in present:
            with suppress(nova_errors.Conflict):
                self._nova.flavor_access.add_tenant_access(reservation_id, project_id)

    def close(self, reservation_id: str) -> None:
        """Revoke the access of all projects to the flavor, if the flavor exists."""
        for project in self.projects(reservation_id):
            with suppress(nova_errors.NotFound):
                self._nova.flavor_access.remove_tenant_access(reservation_id, project)

    def projects(self, reservation_id: str) -> set[str]:
        """Return the ids of the projects with access to the flavor; none if it does not exist."""
        try:
            accesses = self._nova.flavor_access.list(flavor=reservation_id)
            return {access.tenant_id for access in accesses}
        except nova_errors.NotFound:
            return set()

    def servers(self, reservation_id: str) -> list[str]:
        """Return the ids of the servers, in all projects, that have the reservation's flavor."""
        options = {"flavor": reservation_id, "all_tenants": True}
        return [server.id for server in self._nova.servers.list(search_opts=options, limit=-1)]

    def delete(self, reservation_id: str) -> None:
        """Delete the flavor of a reservation, if it exists."""
        with suppress(nova_errors.NotFound):
            self._nova.flavors.delete(reservation_id)

    def named(self) -> dict[str, Any]:
        """Return all flavors whose name looks like that of a reservation's flavor, by flavor id.

        The result includes Blazar's flavors, and those of reservations of single nodes
        (``physical:host``).
        """
        return {each.id: each for each in self._all() if each.name == flavor_name(each.id)}

    def _all(self) -> Iterator[Any]:
        page = self._nova.flavors.list(is_public=None, limit=_PAGE)
        while page:
            yield from page
            page = self._nova.flavors.list(is_public=None, limit=_PAGE, marker=page[-1].id)


def flavor_shape(size: Size) -> dict[str, int]:
    """Return the columns of a reservation's flavor, such as ``{"vcpus": 2, "ram": 4096}``. Pure.

    The columns are the fields of a Nova flavor for CPUs, memory and disk. Nova requires at least
    one virtual CPU and one MiB. If ``size`` has less, the columns have this minimum, and the
    flavor's extra specs have the correct amounts.
    """
    amounts = size.amounts
    minimal = {
        "vcpus": amounts.get("VCPU", 0) + amounts.get("PCPU", 0) or 1,
        "ram": amounts.get("MEMORY_MB", 0) or 1,
        "disk": amounts.get("DISK_GB", 0),
        "ephemeral": 0,
        "swap": 0,
    }
    return dict(size.shape) or minimal


def extra_specs(reservation_id: str, size: Size) -> dict[str, str]:
    """Return the extra specs of a reservation's flavor. Pure.

    The result has

    - the extra specs of ``size``,
    - an extra spec ``resources:...`` for each amount of ``size`` that Nova would not derive from
      the flavor's columns (its fields for CPUs, memory and disk),
    - one unit of the reservation's resource class,
    - climate's marks with the reservation's id.
    """
    shape, own = flavor_shape(size), size.extra_specs
    overridden = {key.partition(":")[2] for key in own if key.startswith(RESOURCES[:-1])}
    taken = {
        "PCPU" if own.get(_POLICY) == "dedicated" else "VCPU": shape["vcpus"],
        "MEMORY_MB": shape["ram"],
        "DISK_GB": shape["disk"] + shape["ephemeral"] - (-shape["swap"] // 1024),
    }
    return {
        **own,
        **_corrections(size.amounts, taken, overridden),
        f"{RESOURCES}{reservation_class(reservation_id)}": "1",
        "aggregate_instance_extra_specs:reservation": reservation_id,
        MARK: reservation_id,
    }


def _corrections(
    amounts: Mapping[str, int], taken: Mapping[str, int], overridden: set[str]
) -> dict[str, str]:
    """Return extra specs for the amounts that Nova would not derive from the flavor's columns.

    The columns are the flavor's fields for CPUs, memory and disk. ``amounts`` contains the correct
    amounts by resource class, ``taken`` the amounts that Nova derives from the columns. The result
    omits the classes in ``overridden``, because other extra specs already set their amounts.
    """
    return {
        f"{RESOURCES}{name}": str(amounts.get(name, 0))
        for name in sorted(amounts.keys() | taken.keys())
        if name not in overridden and amounts.get(name, 0) != taken.get(name, 0)
    }
