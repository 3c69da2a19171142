"""What is at a place that can be reserved: a floating IP at an address, a network on a segment."""

from collections.abc import Iterable
from dataclasses import dataclass

from climate.core.lease import Resource


@dataclass(frozen=True, slots=True, kw_only=True)
class Taker:
    """What is at a place; with a ``reservation_id`` it was made for that reservation.

    ``is_marked`` says whether its owner can see that, too; ``port_id`` where it is in use, and
    ``network_id`` in which network, where several may have a place of the same name.
    """

    what: str
    id: str
    place: str
    project_id: str
    network_id: str | None = None
    port_id: str | None = None
    reservation_id: str | None = None
    is_marked: bool = True

    def __str__(self) -> str:
        """Say which it is and whose."""
        return f"{self.what} {self.id} of project {self.project_id}"

    def is_at_any(self, resources: Iterable[Resource]) -> bool:
        """Tell whether it is at one of these places, or at none of such a name."""
        same = [one for one in resources if one.external_id == self.place]
        networks = {one.properties.get("network_id") for one in same}
        return not same or self.network_id is None or self.network_id in networks
