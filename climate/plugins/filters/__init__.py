"""climate's own filters and weighers, which choose among matching resources. Pure.

A filter returns whether a reservation may get a resource. A weigher returns a number; resources
with the highest numbers are preferred. Other packages can add more.

The modules of this folder run filters of Nova's scheduler, unchanged. ``host_facts`` computes the
values of a ``HostState`` from climate's data about a host. ``nova_objects`` makes Nova's objects of
these values and of the request. ``nova_screen`` loads the filter classes and runs them. climate
imports Nova only if the option ``[selection] nova_filters`` names a class.
"""

from climate.core.matching import query
from climate.core.matching.requirement import Requirement
from climate.core.matching.selection import Candidate

_TRUE = {"true", "yes", "on", "1"}


def no_maintenance(candidate: Candidate, _requirement: Requirement) -> bool:
    """Filter: reject resources whose property ``maintenance`` is true, yes, on or 1."""
    return candidate.resource.properties.get("maintenance", "").lower() not in _TRUE


def fewest_properties(candidate: Candidate, requirement: Requirement) -> float:
    """Weigher: prefer resources with the fewest properties that the request does not name.

    So resources with special properties stay free for requests that name these properties.
    """
    return -len(candidate.resource.properties.keys() - query.names(requirement.query))


def fewest_left(candidate: Candidate, requirement: Requirement) -> float:
    """Weigher: prefer resources with the least free capacity, so that others stay empty."""
    free, amounts = candidate.free, requirement.amounts
    return -min((free.get(name, 0) // amounts[name] for name in amounts), default=0)


def lowest_id(candidate: Candidate, _requirement: Requirement) -> float:
    """Weigher: prefer the resources that were registered first."""
    return -candidate.resource.id
