"""Reminder rules: how long before the start the owner of a lease gets reminders. Pure.

An operator writes rules for leases that need longer notice, such as leases of slow hosts. The first
rule that matches a lease replaces the offsets that apply to all other leases.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from climate.core.errors import InvalidQuery
from climate.core.lease.model import Resource
from climate.core.matching import expression, query
from climate.core.matching.property_type import Types, typed
from climate.core.matching.query import Query

# Seconds (nine digits are more than thirty years), or a percentile such as p95.
_LEAD = re.compile(r"[1-9][0-9]{0,8}|p[1-9][0-9]?")


@dataclass(frozen=True, slots=True)
class Rule:
    """When to remind of the start of leases with a certain type of reservation.

    ``leads`` are seconds before the start. If ``resources`` is set, the rule matches only leases
    that have booked a resource with these properties. Each item of ``shares``, such as 0.95, adds a
    reminder when the preparation of the lease's hosts must begin, so that this share of leases is
    ready at the start.
    """

    resource_type: str
    resources: Query | None
    leads: tuple[int, ...]
    shares: tuple[float, ...] = ()

    def matches(self, resource_types: Collection[str], booked: Iterable[Resource]) -> bool:
        """Return whether the rule matches a lease.

        ``resource_types`` are the types of its reservations, ``booked`` its booked resources.
        """
        if self.resource_type not in resource_types:
            return False
        wanted = self.resources
        return wanted is None or any(query.matches(wanted, each.properties) for each in booked)


def parse(line: str, types: Types) -> Rule:
    """Return the rule in a line of the configuration: TYPE [EXPRESSION]: SECONDS, p95.

    ``types`` are the declared types of properties, by which the expression compares values. Raises
    ValueError, with a message for the operator.
    """
    subject, _, numbers = line.rpartition(":")
    resource_type, _, source = subject.strip().partition(" ")
    leads = [text.strip() for text in numbers.split(",")]
    if ":" not in resource_type or not all(_LEAD.fullmatch(text) for text in leads):
        raise ValueError(f"{line!r} is not of the form TYPE [EXPRESSION]: SECONDS, p95")
    try:
        wanted = typed(expression.parse(source), types) if source.strip() else None
    except InvalidQuery as error:
        raise ValueError(f"{line!r}: {error.message}") from None
    return Rule(
        resource_type,
        wanted,
        leads=tuple(int(text) for text in leads if text.isdigit()),
        shares=tuple(int(text[1:]) / 100 for text in leads if not text.isdigit()),
    )


def need_resources(rules: Iterable[Rule], resource_types: Collection[str]) -> bool:
    """Return whether the reminders of a lease depend on the resources that it books."""
    first = next((rule for rule in rules if rule.resource_type in resource_types), None)
    return first is not None and bool(first.resources or first.shares)


def find(
    rules: Iterable[Rule], resource_types: Collection[str], booked: Collection[Resource] = ()
) -> Rule | None:
    """Return the first rule that matches a lease; None if none does."""
    return next((rule for rule in rules if rule.matches(resource_types, booked)), None)
