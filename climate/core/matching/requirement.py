"""The resources that admission must find for a reservation, in terms common to all types."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from climate.core.matching.query import Query


class Layout(StrEnum):
    """Where the units of one reservation may be, relative to each other."""

    ANYWHERE = "anywhere"
    TOGETHER = "together"
    APART = "apart"


@dataclass(frozen=True, slots=True)
class Requirement:
    """``minimum``..``maximum`` units on resources of a type that match ``query``.

    A unit is a whole resource or, with ``amounts``, that much of each resource class (``VCPU``,
    ``MEMORY_MB``, ``DISK_GB``, ``CUSTOM_...``) of one resource, which others may share.
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
        """The parts of the requirement, each without ``besides``."""
        if self.besides is None:
            return (self,)
        return (replace(self, besides=None), *self.besides.parts)

    @property
    def is_whole(self) -> bool:
        """Whether a unit is a whole resource, which no other lease shares."""
        return not self.amounts

    def units(self, amounts: Mapping[str, int]) -> int:
        """Return how many units an allocation of ``amounts`` has; one if it is of a whole resource.

        The allocation may have other resource classes: a lease that ends now keeps its
        allocations, whatever its parameters become.
        """
        common = amounts.keys() & self.amounts.keys()
        return min((amounts[name] // self.amounts[name] for name in common), default=1)
