"""Growth: a reservation keeps its resources, and gains exactly the resources that the user names.

``with_named`` splits the requirement of the reservation into one for the named resources and one
for the others. Admission then chooses, locks and checks them like all resources.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from sqlalchemy.orm import Session

from climate.core.errors import Conflict
from climate.core.matching.requirement import Requirement
from climate.core.window import Window, in_words
from climate.db.resources import allocations, resources
from climate.manager.admission.candidates import Demand


def with_named(
    requirements: Mapping[str, tuple[Requirement, ...]],
    held: Mapping[str, Collection[int]],
    joining: Mapping[str, Collection[int]],
) -> dict[str, tuple[Requirement, ...]]:
    """Return the requirements by reservation, with those for the resources in ``joining``.

    ``held`` and ``joining`` contain ids of resources by reservation: what it has, and what it
    gains. Raises Conflict if the reservation would have another number of resources than its
    parameters say.
    """
    split = {id_: _split(id_, requirements[id_], held[id_], ids) for id_, ids in joining.items()}
    return {**requirements, **split}


def _split(
    id_: str, parts: Sequence[Requirement], held: Collection[int], joining: Collection[int]
) -> tuple[Requirement, ...]:
    (whole,) = parts
    count = len(held) + len(joining)
    if not set(joining).isdisjoint(held):
        raise Conflict(f"Reservation {id_} has just changed: read it, and try again")
    if whole.maximum != count:
        raise Conflict(
            f"Reservation {id_} would have {count} {whole.noun}, and max {whole.maximum}, so it"
            f" cannot get exactly the {len(joining)} named: leave out max, or try again if it has"
            " just changed"
        )
    ids = frozenset(joining)
    named = replace(whole, minimum=len(ids), maximum=len(ids), named=ids)
    return named, replace(whole, minimum=len(held), maximum=len(held))


def why_unavailable(
    session: Session, demands: Sequence[Demand], index: int, occupied: Window
) -> str:
    """Return the message that says why a reservation cannot get resources that the user names.

    ``index`` is the position of the demand for them. A demand is what one reservation requires. The
    transaction has deleted the bookings of the lease.
    """
    demand = demands[index]
    requirement, ids = demand.requirement, demand.requirement.named
    kept = {id_ for other in demands for id_ in other.kept}
    reservable = resources.reservable(session, ids)
    matching = set(allocations.matching(session, requirement, limit=None, rotation=0.0))
    free = allocations.still_free(session, requirement, occupied, ids)
    booked = f"booked {in_words(occupied)} UTC, cleaning time included"
    by_reason = {
        "in another reservation of the lease": ids & kept,
        "not reservable now": ids - reservable,
        "excluded by hypervisor_properties or resource_properties": reservable - matching,
        booked: matching - free,
    }
    if not any(by_reason.values()):
        by_reason["excluded by the operator's filters"] = ids
    names = {key: named.external_id for key, named in allocations.names(session, ids).items()}
    unavailable = (
        f"{', '.join(sorted(names.get(id_, str(id_)) for id_ in found))} ({reason})"
        for reason, found in by_reason.items()
        if found
    )
    return f"Reservation {demand.reservation_id} cannot get {', '.join(unavailable)}"
