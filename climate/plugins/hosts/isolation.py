"""The two ways in which Nova's scheduler is told to keep everybody but the owner off. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from oslo_config.cfg import ConfigOpts

from climate.core.errors import Conflict

# A project that nobody can be in: Keystone's ids are 32 hexadecimal digits.
NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Isolation:
    """The metadata key of the owner, the zone of a reservation, and what closes the free pool.

    Only with ``nodes`` can one node of a service that has several be reserved.
    """

    owner_key: str
    zone_prefix: str | None
    free: Mapping[str, str]
    nodes: bool

    def operators_zone(self, zone: str) -> str:
        """Return an availability zone, unless it is one that a reservation brought."""
        return "" if self.zone_prefix and zone.startswith(self.zone_prefix) else zone

    def check_zones(self, host: str, zones: Collection[str | None]) -> None:
        """Raise Conflict if Nova could not move the host into a reservation's zone later."""
        present = sorted(zone for zone in zones if zone)
        if present and self.zone_prefix is not None:
            raise Conflict(
                f"{host} is in availability zone {present[0]}, and Nova gives no host a second"
                " one, which [nova] isolation = blazar needs"
            )


def isolation(conf: ConfigOpts) -> Isolation:
    """Return what ``[nova] isolation`` means: whose filter reads the aggregates, and what in them.

    ``blazar`` is for the filter of the package blazar-nova, which needs the zone and takes the
    free pool by its name; ``tenancy`` for Nova's own AggregateMultiTenancyIsolation.
    """
    if conf.nova.isolation == "blazar":
        return Isolation("blazar:owner", conf.nova.blazar_az_prefix, {}, nodes=False)
    return Isolation("filter_tenant_id", None, {"filter_tenant_id": NOBODY}, nodes=True)
