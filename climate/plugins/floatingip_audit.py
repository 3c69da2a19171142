"""Floating IPs at registered addresses, against those that leases have. Looks only.

Of all others in the cloud nothing is said: they may be of another service like this one.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Protocol

from climate.plugins.addresses import Floatingip
from climate.plugins.base import Difference, Expected, Holding


class AuditedCloud(Protocol):
    """What an audit needs of a FloatingipCloud."""

    def floatingips(
        self, addresses: Collection[str], reservation_id: str | None = None
    ) -> Sequence[Floatingip]:
        """Return the floating IPs at addresses."""

    def delete(self, floating: Floatingip) -> None:
        """Delete a floating IP."""


def differences(cloud: AuditedCloud, expected: Callable[[], Expected]) -> Iterator[Difference]:
    """Name every difference; reservations that a manager is at are left out."""
    addresses = [one.external_id for one in expected().registered]
    there = cloud.floatingips(addresses) if addresses else []
    told = expected()
    running = {holding.reservation.id: holding for holding in told.running}
    for holding in told.running:
        yield from _of_running(holding, there)
    known = running.keys() | set(told.changing)
    promised = {
        (resource.external_id, holding.lease.project_id)
        for holding in told.running
        if holding.reservation.params["on_start"] == "nothing"
        for resource in holding.resources
    }
    made = {id_ for one in told.running for id_ in _made(one).values()}
    for one in there:
        if one.reservation_id is not None and one.reservation_id not in known:
            yield Difference(
                f"{one} has {one.address} for reservation {one.reservation_id}, which does not run",
                partial(cloud.delete, one),
                reservation_id=one.reservation_id,
            )
        unexplained = one.id not in made and (one.address, one.project_id) not in promised
        if one.reservation_id is None and unexplained:
            yield Difference(f"{one.address} can be reserved, and {one} has it")


def _of_running(holding: Holding, there: Sequence[Floatingip]) -> Iterator[Difference]:
    """Compare a running reservation; the manager does it over again to repair it."""
    if holding.reservation.params["on_start"] == "nothing":
        return
    mine = f"reservation {holding.reservation.id} of lease {holding.lease.id}"
    ids = _made(holding).values()
    has = {
        one.address
        for one in there
        if one.reservation_id == holding.reservation.id or one.id in ids
    }
    for resource in holding.resources:
        if resource.reservable and resource.external_id not in has:
            yield Difference(
                f"{mine} lacks floating IP {resource.external_id}", lease_id=holding.lease.id
            )
    for address in sorted(has - {resource.external_id for resource in holding.resources}):
        yield Difference(
            f"{mine} has floating IP {address}, which is not its own", lease_id=holding.lease.id
        )


def _made(holding: Holding) -> dict[str, str]:
    return dict(holding.reservation.details.get("floatingips", {}))
