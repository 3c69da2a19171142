"""The filters and weighers that ship with climate; packages can add others. Pure."""

from climate.core.matching import query
from climate.core.matching.requirement import Requirement
from climate.core.matching.selection import Candidate

_TRUE = {"true", "yes", "on", "1"}


def no_maintenance(candidate: Candidate, _requirement: Requirement) -> bool:
    """Reject resources whose property ``maintenance`` is true."""
    return candidate.resource.properties.get("maintenance", "").lower() not in _TRUE


def fewest_properties(candidate: Candidate, requirement: Requirement) -> float:
    """Prefer resources with few unrequested properties: special ones stay free."""
    return -len(candidate.resource.properties.keys() - query.names(requirement.query))


def fewest_left(candidate: Candidate, requirement: Requirement) -> float:
    """Prefer resources with capacity for the fewest units: others stay free as a whole."""
    free, amounts = candidate.free, requirement.amounts
    return -min((free.get(name, 0) // amounts[name] for name in amounts), default=0)


def lowest_id(candidate: Candidate, _requirement: Requirement) -> float:
    """Prefer the resources that were registered first: this keeps bookings together."""
    return -candidate.resource.id
