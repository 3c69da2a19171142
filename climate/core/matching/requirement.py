"""A requirement: the resources that a reservation needs, in a form common to all resource types."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from climate.core.matching.query import Everything, Query, both

#: The resource class of the row that marks an exclusive share in the table of allocations.
EXCLUSIVE = "CLIMATE_EXCLUSIVE"
#: The resource classes of the size of an instance. Others can be those of devices.
SIZES = frozenset({"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"})


class Layout(StrEnum):
    """Whether units must be on one resource (TOGETHER), on different ones (APART), or ANYWHERE."""

    ANYWHERE = "anywhere"
    TOGETHER = "together"
    APART = "apart"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedFlavor:
    """The flavor of one unit, as the request states it; filters of Nova's scheduler read it.

    ``shape`` contains the sizes: ``vcpus``, ``ram`` and ``swap`` (MiB), ``disk`` and ``ephemeral``
    (GiB). It is empty if a unit is a whole resource. ``image`` is the id of the image of the
    servers that climate starts, if any. ``devices`` are those extra specs that the user wrote, that
    request devices, and that only a filter of Nova can check.
    """

    name: str = ""
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    shape: Mapping[str, int] = field(default_factory=dict)
    image: str = ""
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a reservation needs: ``minimum`` to ``maximum`` units.

    The units must be on resources of ``resource_type`` that match ``query``. ``amounts`` is the
    size of a unit, which is a part of one resource: for example ``{"VCPU": 4, "MEMORY_MB": 8192}``.
    If ``amounts`` is empty, a unit is a whole resource. ``besides`` is a further requirement of the
    same reservation (None: there is none). ``noun`` is the word for the resources in error
    messages. ``permitted`` is the operator's condition on resources, which the user does not see.
    If ``exclusive`` is set, no other reservation may have a share of the same resources.
    """

    resource_type: str
    minimum: int
    maximum: int
    query: Query
    amounts: Mapping[str, int] = field(default_factory=dict)
    layout: Layout = Layout.ANYWHERE
    #: A further requirement of the reservation. No resource matches the queries of two parts.
    besides: "Requirement | None" = None
    #: The word for the resources in messages about a shortage.
    noun: str = "hosts"
    #: Which resources the operator permits; like ``query``, every resource must match it.
    permitted: Query = field(default_factory=Everything)
    #: The flavor of a unit, if the resources are hosts.
    flavor: RequestedFlavor | None = None
    #: The project of the request. It is empty, except if a filter of Nova reads it.
    project_id: str = ""
    #: Whether no other reservation may share the resources at the same time.
    exclusive: bool = False
    #: The ids of the only resources that match, because the user names them; empty: no names.
    named: frozenset[int] = frozenset()

    @property
    def condition(self) -> Query:
        """The query that a resource must match: that of the user, and that of the operator."""
        return both(self.query, self.permitted)

    @property
    def parts(self) -> "tuple[Requirement, ...]":
        """All requirements of the reservation: this one, then the further ones (``besides``)."""
        if self.besides is None:
            return (self,)
        return (replace(self, besides=None), *self.besides.parts)

    @property
    def is_whole(self) -> bool:
        """Whether a unit is a whole resource, so that no other lease shares the resource."""
        return not self.amounts

    @property
    def is_alone(self) -> bool:
        """Whether no other reservation can have a part of the same resource at the same time."""
        return self.is_whole or self.exclusive

    def units(self, amounts: Mapping[str, int]) -> int:
        """Return how many units an allocation of ``amounts`` contains.

        Example: 2, if ``amounts`` is ``{"VCPU": 8}`` and a unit is ``{"VCPU": 4}``. The result is 1
        if ``amounts`` is empty (a whole resource). Resource classes that this requirement does not
        have are ignored, because the parameters of a lease may have changed after the allocation.
        Devices count only if nothing else does: their number comes from the configuration, which
        may have changed, too.
        """
        common = amounts.keys() & self.amounts.keys()
        counted = common & SIZES or common
        return min((amounts[name] // self.amounts[name] for name in counted), default=1)
