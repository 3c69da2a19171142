"""InstanceCloud: the interface of drivers for clouds in which climate reserves instances.

A slot is reserved capacity on a host for one instance (server). The plug-ins open the slots of a
reservation to a project, set their number on each host, close them (no new instances) and delete
them. The drivers are for Nova, or simulated.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from climate.plugins.base import Requester


@dataclass(frozen=True, slots=True)
class Size:
    """The size of one instance.

    ``amounts`` is, for example, ``{"VCPU": 2, "MEMORY_MB": 4096}``. If the user reserved instances
    of a flavor, ``extra_specs`` are this flavor's extra specs, and ``shape`` contains its sizes,
    such as ``{"vcpus": 2, "ram": 4096}``. Otherwise both are empty.
    """

    #: The amounts that the instance allocates, by resource class of Placement.
    amounts: Mapping[str, int]
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    #: ``vcpus``, ``ram`` and ``swap`` (MiB), ``disk`` and ``ephemeral`` (GiB) of the reserved
    #: flavor. Empty if no flavor was reserved.
    shape: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Match:
    """Which servers of the project use the slots of a reservation.

    Servers with the reservation's own flavor always do. If ``is_open`` is set, so do servers with
    ordinary flavors: only with the flavor whose name is ``flavor``, or with any if it is empty.
    """

    is_open: bool = False
    flavor: str = ""


TARGETED = Match()


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of a reservation in the cloud; each is reserved capacity for one instance."""

    #: The ids of the projects that can boot instances in the slots.
    projects: Collection[str]
    #: The number of usable slots by host; 0 if the objects of the slots are incomplete on the host.
    hosts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Flavor:
    """A flavor whose instances users can reserve.

    ``ram`` and ``swap`` are in MiB, ``disk`` and ``ephemeral`` in GiB.
    """

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
    """Which servers climate must start in the slots of a reservation.

    ``amount`` is the number of all servers of the reservation, and ``known`` the number of those
    that were started before.
    """

    reservation_id: str
    #: The default of the servers' name.
    name: str
    #: The number of all servers of the reservation.
    amount: int
    #: The number of servers that were booted before: the reservation's details have their ids.
    known: int
    #: The user's part of the body of Nova's request.
    server: Mapping[str, Any] = field(repr=False)
    #: What the console of a server shows when it has booted; empty: do not look at the console.
    ready_text: str = ""
    #: The TCP port on which a server accepts connections when it is ready; None: do not check it.
    ready_port: int | None = None
    #: The ids of servers that were ready before.
    booted: frozenset[str] = frozenset()


class InstanceCloud(Protocol):
    """Interface of a driver for a cloud in which climate reserves instances.

    ``host`` is the external id of a host. A slot is reserved capacity on a host for one instance.
    All methods that change the cloud are idempotent.
    """

    #: Whether climate boots servers as the lease's user, which requires a Keystone trust.
    acts_as_user: bool

    @property
    def makes_groups(self) -> bool:
        """Whether reservations with an affinity get a server group."""

    @property
    def matches_openly(self) -> bool:
        """Whether servers with ordinary flavors can use slots."""

    def find_flavor(self, flavor_id: str, project_id: str) -> Flavor | None:
        """Return the flavor; None if it does not exist or the project has no access to it."""

    def check_image(self, image_id: str, requester: Requester) -> None:
        """Raise InvalidInput if the requester cannot use the image."""

    def open_slots(
        self, reservation_id: str, project_id: str, size: Size, match: Match = TARGETED
    ) -> Mapping[str, Any]:
        """Let only this project start instances of this size in the slots of a reservation.

        No host has slots yet; ``set_slots`` puts them on hosts. The project starts instances with
        a flavor whose id is ``reservation_id``, and with those flavors that ``match`` admits.
        Returns additional details of the reservation for users.
        """

    def slot_hosts(self, reservation_id: str) -> Sequence[str]:
        """Return the hosts that may have slots of the reservation."""

    def set_slots(
        self,
        reservation_id: str,
        host: str,
        count: int,
        room: Mapping[str, int] | None = None,
    ) -> None:
        """Set the number of slots of a reservation on a host.

        A slot is reserved capacity for one instance. ``room`` is the capacity of all slots on the
        host, by resource class: all that servers with any flavor can use of it. If it is None, only
        the reservation's own flavor can be used. Raises an error if the host cannot have slots, for
        instance while a reservation has the whole host.
        """

    def boot(self, trust_id: str | None, boot: Boot) -> Sequence[str]:
        """Start the servers with the numbers ``boot.known`` + 1 to ``boot.amount``; return the ids.

        If a server with one of these numbers exists, do not start it again. The servers belong to
        the user who created the Keystone trust ``trust_id``; None if the cloud needs no trust.
        Raises NotYet while the cloud builds servers, or while they are not ready, and another error
        if it cannot build a server.
        """

    def make_group(self, requester: Requester, reservation_id: str, *, apart: bool) -> str:
        """Create the server group of a reservation in the requester's project; return its id.

        With ``apart``, the group keeps servers on different hosts, else on one host.
        ``delete_slots`` deletes the group, too. Raises Conflict if the requester has no token.
        """

    def delete_group(self, reservation_id: str) -> None:
        """Delete the server group of a reservation, if there is one. Servers stay."""

    def keep_images(self, reservation_id: str) -> None:
        """Create an image of each instance whose state allows this. The project owns the images.

        Raises NotYet while the cloud saves images.
        """

    def clear_host(self, reservation_id: str, host: str) -> None:
        """Delete the instances and slots of a reservation on a host.

        If ordinary flavors can use the slots, delete all instances on the host. Raises NotYet while
        instances remain.
        """

    def close_slots(self, reservation_id: str) -> None:
        """Prevent new instances in the slots of a reservation, if they are not prevented yet."""

    def delete_slots(self, reservation_id: str) -> None:
        """Delete everything that the cloud still has for a reservation, such as its flavor.

        Also deletes instances that are on no host. Raises NotYet while instances are being deleted.
        """

    def slots(self) -> Mapping[str, Slots]:
        """Return the slots of all reservations, by reservation id.

        A reservation is included even if some of its objects in the cloud are missing.
        """

    def slot_servers(self, reservation_id: str, host: str | None = None) -> Sequence[str]:
        """Return the ids of a reservation's instances.

        If ``host`` is set, return only those on this host.
        """
