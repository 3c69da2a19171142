"""Instance slots: the capacity of a reservation on a host, for one instance each.

The instance plug-ins open a reservation's slots for a project, put them on hosts, remove them from
hosts, close them and delete them. An InstanceCloud (Nova, or the simulated one) carries this out.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from climate.plugins.base import Requester


@dataclass(frozen=True, slots=True)
class Size:
    """The amounts of one instance by resource class, and its flavor's extra specs.

    ``shape`` are the flavor's columns (``ram`` and ``swap`` in MiB, disks in GiB), or empty.
    """

    amounts: Mapping[str, int]
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    shape: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Slots:
    """A reservation's slots as the cloud has them: the projects that can use them, and the hosts.

    ``hosts`` has the number of usable slots: 0 on a host where they are incomplete.
    """

    projects: Collection[str]
    hosts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Flavor:
    """A flavor as a reservation stores it; ``ram`` and ``swap`` in MiB, disks in GiB."""

    id: str
    name: str
    vcpus: int
    ram: int
    disk: int
    ephemeral: int
    swap: int
    extra_specs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """The servers to boot in a reservation's slots: ``amount`` in all, of which ``known`` exist.

    ``server`` is the body of Nova's request, ``name`` the default of its name.
    """

    reservation_id: str
    name: str
    amount: int
    known: int
    server: Mapping[str, Any] = field(repr=False)


class InstanceCloud(Protocol):
    """A cloud in which climate reserves instances.

    Hosts are named by their external id, slots by the id of their reservation. All methods that
    change something are idempotent.
    """

    #: Whether climate boots servers as the user, which takes a trust.
    acts_as_user: bool

    def find_flavor(self, flavor_id: str, project_id: str) -> Flavor | None:
        """Return a flavor, or None if the project can use none of this id."""

    def check_image(self, image_id: str, requester: Requester) -> None:
        """Raise InvalidInput if the requester cannot use the image."""

    def open_slots(self, reservation_id: str, project_id: str, size: Size) -> Mapping[str, Any]:
        """Let only this project boot instances of this size, limited by the slots on hosts.

        Return further details for users; the flavor's id is the reservation's id.
        """

    def slot_hosts(self, reservation_id: str) -> Sequence[str]:
        """Return the hosts that may have slots."""

    def set_slots(self, reservation_id: str, host: str, count: int) -> None:
        """Set the number of slots on a host. Raises an error if the host cannot be shared now."""

    def boot(self, trust_id: str | None, boot: Boot) -> Sequence[str]:
        """Boot the servers that are not known yet, as the user of the trust; return their ids.

        Raises NotYet while they are being built, and another error if one cannot be built.
        """

    def keep_images(self, reservation_id: str) -> None:
        """Save an image of each instance for the project, where its state allows one.

        Raises NotYet while images are being saved.
        """

    def clear_host(self, reservation_id: str, host: str) -> None:
        """Delete the slots on a host, with their instances; raises NotYet until they are gone."""

    def close_slots(self, reservation_id: str) -> None:
        """Prevent new instances; succeeds if the slots are closed already."""

    def delete_slots(self, reservation_id: str) -> None:
        """Delete instances that are on no host, and all that remains; raises NotYet until done."""

    def slots(self) -> Mapping[str, Slots]:
        """Return all slots by reservation id, including incomplete ones."""

    def slot_servers(self, reservation_id: str, host: str | None = None) -> Sequence[str]:
        """Return the ids of a reservation's instances, or of those on one ``host``."""
