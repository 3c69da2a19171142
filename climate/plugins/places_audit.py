"""What is at registered places, against what leases have there. Looks only.

Of all else in the cloud nothing is said: it may be of another service like this one.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from climate.plugins.base import Difference, Expected, Holding
from climate.plugins.taker import Taker


class AuditedCloud(Protocol):
    """What an audit needs of a PlaceCloud."""

    def takers(self, places: Collection[str], reservation_id: str | None = None) -> Sequence[Taker]:
        """Return what is at the places."""

    def delete(self, taker: Taker) -> None:
        """Delete it."""


def differences(
    cloud: AuditedCloud, expected: Callable[[], Expected], key: str
) -> Iterator[Difference]:
    """Name every difference; reservations that a manager is at are left out.

    What was made for one is by its id under ``key`` of its details.
    """
    registered = expected().registered
    found = cloud.takers([one.external_id for one in registered]) if registered else []
    there = [one for one in found if one.is_at_any(registered)]
    told = expected()
    running = {holding.reservation.id: holding for holding in told.running}
    for holding in told.running:
        yield from _of_running(holding, there, _made(holding, key))
    known = running.keys() | set(told.changing)
    promised = {
        (resource.external_id, holding.lease.project_id)
        for holding in told.running
        if holding.reservation.params["on_start"] == "nothing"
        for resource in holding.resources
    }
    made = {id_ for one in told.running for id_ in _made(one, key).values()}
    for one in there:
        if one.reservation_id is not None and one.reservation_id not in known:
            yield Difference(
                f"{one} has {one.place} for reservation {one.reservation_id}, which does not run",
                partial(cloud.delete, one),
                reservation_id=one.reservation_id,
            )
        unexplained = one.id not in made and (one.place, one.project_id) not in promised
        if one.reservation_id is None and unexplained:
            yield Difference(f"{one.place} can be reserved, and {one} has it")


def _of_running(
    holding: Holding, there: Sequence[Taker], made: Mapping[str, str]
) -> Iterator[Difference]:
    """Compare a running reservation; the manager does it over again to repair it."""
    if holding.reservation.params["on_start"] == "nothing":
        return
    mine = f"reservation {holding.reservation.id} of lease {holding.lease.id}"
    has = {
        one.place
        for one in there
        if one.reservation_id == holding.reservation.id or one.id in made.values()
    }
    for resource in holding.resources:
        if resource.reservable and resource.external_id not in has:
            yield Difference(f"{mine} lacks {resource.external_id}", lease_id=holding.lease.id)
    for place in sorted(has - {resource.external_id for resource in holding.resources}):
        yield Difference(f"{mine} has {place}, which is not its own", lease_id=holding.lease.id)


def _made(holding: Holding, key: str) -> Mapping[str, str]:
    found: Mapping[str, str] = holding.reservation.details.get(key, {})
    return found
