"""Use case: describe resources with their states and, for operators, with their bookings."""

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
    """A resource with its state, and with facts that only operators see.

    ``report`` contains the times of the host's last changes. It is None if the requester may not
    see it, if the resource is not a host, or if provisioning is disabled. ``now`` and ``next`` are
    the present and the next booking, if requested; None if there is no such booking.
    """

    resource: Resource
    state: HostState
    report: HostReport | None = None
    now: Booking | None = None
    next: Booking | None = None


def describe(
    runtime: Runtime, resources: Sequence[Resource], *, reports: bool, bookings: bool = False
) -> list[DescribedResource]:
    """Return the resources with their states, in the same order. Executes at most three statements.

    If ``reports`` is set, add the reports of hosts. If ``bookings`` is set, add the present and the
    next booking of each resource.
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
