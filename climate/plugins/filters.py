"""The filters and weighers that climate brings; others are plug-ins, too. Pure."""

from climate.core.matching import query
from climate.core.matching.requirement import Requirement
from climate.core.matching.selection import Candidate

_YES = {"true", "yes", "on", "1"}


def no_maintenance(candidate: Candidate, _requirement: Requirement) -> bool:
    """Pass over what an operator has given the property ``maintenance``, and true as its value."""
    return candidate.resource.properties.get("maintenance", "").lower() not in _YES


def fewest_properties(candidate: Candidate, requirement: Requirement) -> float:
    """Prefer what has least that nobody asked for: what is special stays for who needs it."""
    return -len(candidate.resource.properties.keys() - query.names(requirement.query))


def fewest_left(candidate: Candidate, requirement: Requirement) -> float:
    """Prefer what has room for the fewest: fill resources, and keep others free as a whole."""
    free, amounts = candidate.free, requirement.amounts
    return -min((free.get(name, 0) // amounts[name] for name in amounts), default=0)


def lowest_id(candidate: Candidate, _requirement: Requirement) -> float:
    """Prefer what was registered first: bookings stay together, whoever makes them."""
    return -candidate.resource.id
