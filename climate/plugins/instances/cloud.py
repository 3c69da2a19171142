"""Slots: room for reserved instances, so many of a reservation on each host that has some for it.

A reservation's slots are opened for a project, put on hosts, cleared off them, closed and deleted.
The plugins of instances say when; an InstanceCloud (Nova, or the simulated one) knows how.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from climate.plugins.base import Asker


@dataclass(frozen=True, slots=True)
class Size:
    """What one instance takes of each resource class, and what else its flavor says.

    ``shape`` is the flavor's columns (``ram`` and ``swap`` MiB, others GiB), if they are given.
    """

    amounts: Mapping[str, int]
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    shape: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Slots:
    """A reservation's slots as the cloud has them: who may use them, and how many on which host.

    There are 0 on a host on which something of them is left or missing, so that none can be used.
    """

    projects: Collection[str]
    hosts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Flavor:
    """A flavor of the cloud's as a reservation of it keeps it: MiB are ``ram`` and ``swap``."""

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
    """Servers to be booted in the slots of a reservation: ``amount`` in all, ``known`` are there.

    ``server`` is what Nova is asked for each, ``name`` what they are called if it does not say.
    """

    reservation_id: str
    name: str
    amount: int
    known: int
    server: Mapping[str, Any] = field(repr=False)


class InstanceCloud(Protocol):
    """What must be known and done about slots, however a cloud does it.

    Hosts are named by their external id, slots by their reservation's. All methods are idempotent
    where they change anything.
    """

    #: Whether servers are booted as the user, who must trust us for that.
    acts_as_user: bool

    def find_flavor(self, flavor_id: str, project_id: str) -> Flavor | None:
        """Return a flavor, None if there is none of this id that the project may use."""

    def check_image(self, image_id: str, asker: Asker) -> None:
        """Raise InvalidInput if the asker has no such image to boot servers from."""

    def open_slots(self, reservation_id: str, project_id: str, size: Size) -> Mapping[str, Any]:
        """Let the project alone boot instances of this size, as far as there are slots for them.

        Returns what users need to know besides the flavor's id, which is the reservation's.
        """

    def slot_hosts(self, reservation_id: str) -> Sequence[str]:
        """Return the hosts on which slots may be."""

    def set_slots(self, reservation_id: str, host: str, count: int) -> None:
        """Have so many slots on a host; raises an error if it cannot be shared now."""

    def boot(self, trust_id: str | None, boot: Boot) -> Sequence[str]:
        """Have the servers that are not known, as the user of the trust; return their ids.

        Raises NotYet while they are being built, another error with the reason if one cannot be.
        """

    def keep_images(self, reservation_id: str) -> None:
        """Have an image, the project's, of each instance that one can be made of.

        Raises NotYet while they are being saved.
        """

    def clear_host(self, reservation_id: str, host: str) -> None:
        """Delete the instances in the slots on a host, and the slots; raises NotYet meanwhile."""

    def close_slots(self, reservation_id: str) -> None:
        """Let nobody boot any more; fine if that is so."""

    def delete_slots(self, reservation_id: str) -> None:
        """Delete the instances that are nowhere, and all else there is; raises NotYet meanwhile."""

    def slots(self) -> Mapping[str, Slots]:
        """Return all there are, by reservation id, also what is left of any."""

    def slot_servers(self, reservation_id: str, host: str | None = None) -> Sequence[str]:
        """Return the ids of the instances of a reservation; those in slots on ``host`` alone."""
