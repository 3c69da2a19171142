"""Use case: describe resources for people, with their state and, for operators, their holders."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from climate.core.lease.holding import Booking
from climate.core.lease.model import HOST, Resource
from climate.core.provisioning.host_state import HostFacts, HostReport, HostState
from climate.db.provisioning import host_facts
from climate.db.resources import holders
from climate.manager.process.runtime import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedResource:
    """A resource with its state, and what only operators see.

    ``report`` is None for requesters who may not see it, for resources that are no hosts, and
    without provisioning. ``now`` and ``next`` are its bookings, if requested.
    """

    resource: Resource
    state: HostState
    report: HostReport | None = None
    now: Booking | None = None
    next: Booking | None = None


def describe(
    runtime: Runtime, resources: Sequence[Resource], *, reports: bool, bookings: bool = False
) -> list[DescribedResource]:
    """Return the resources, in the same order, with their states (at most three statements).

    ``reports`` adds the reports of hosts, ``bookings`` the present and the next booking.
    """
    ids, now = [resource.id for resource in resources], runtime.clock.now()
    provisioning = runtime.settings.provisioning is not None
    with runtime.database.read() as session:
        found = host_facts.find(session, ids, provisioning=provisioning)
        pairs = holders.current_and_next(session, ids, now) if bookings and ids else {}
    described, shown = [], reports and provisioning
    for resource in resources:
        # A resource that was removed after it was listed has no facts.
        report = found.get(resource.id, HostReport(facts=HostFacts(reservable=resource.reservable)))
        current, following = pairs.get(resource.id, (None, None))
        described.append(
            DescribedResource(
                resource=replace(resource, reservable=report.facts.reservable),
                state=report.state,
                report=report if shown and resource.type == HOST else None,
                now=current,
                next=following,
            )
        )
    return described
