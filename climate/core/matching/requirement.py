"""A requirement: the resources that a reservation needs, in a form common to all resource types."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from climate.core.matching.query import Query


class Layout(StrEnum):
    """Whether the units of a reservation must be on one resource, or on different ones."""

    ANYWHERE = "anywhere"
    TOGETHER = "together"
    APART = "apart"


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a reservation needs: from ``minimum`` to ``maximum`` units.

    The units must be on resources of one type that match ``query``. If ``amounts`` is empty, a unit
    is a whole resource. Otherwise it is a share of one resource: that amount of each resource class
    (``VCPU``, ``MEMORY_MB``, ``DISK_GB``, ``CUSTOM_...``).
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

    @property
    def parts(self) -> "tuple[Requirement, ...]":
        """The requirement and the further requirements that it links by ``besides``, as a tuple."""
        if self.besides is None:
            return (self,)
        return (replace(self, besides=None), *self.besides.parts)

    @property
    def is_whole(self) -> bool:
        """Whether a unit is a whole resource, which no other lease shares."""
        return not self.amounts

    def units(self, amounts: Mapping[str, int]) -> int:
        """Return how many units an allocation of ``amounts`` has; 1 if it is of a whole resource.

        The allocation may have other resource classes than this requirement: a lease that ends now
        keeps its allocations, whatever its parameters become.
        """
        common = amounts.keys() & self.amounts.keys()
        return min((amounts[name] // self.amounts[name] for name in common), default=1)
