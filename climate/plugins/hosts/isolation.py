"""How climate reserves hosts for one project: with aggregates and a filter of Nova's scheduler.

climate supports two such filters; the operator selects one. The code here sends no requests.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from oslo_config.cfg import ConfigOpts

from climate.core.errors import Conflict

# An id that no project can have: Keystone's ids are 32 hexadecimal digits.
NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Isolation:
    """What a filter of Nova's scheduler requires of host aggregates: metadata and zones."""

    #: The metadata key of an aggregate whose value is the id of the project with access.
    owner_key: str
    #: The prefix of the availability zones that climate creates, one per reservation. None: climate
    #: creates no zones.
    zone_prefix: str | None
    #: The metadata of the free pool's aggregate, which closes its hosts to all projects.
    free: Mapping[str, str]

    @property
    def admits_ordinary_flavors(self) -> bool:
        """Whether users boot servers on reserved hosts without a hint or a flavor of climate."""
        return self.zone_prefix is None

    def operators_zone(self, zone: str) -> str:
        """Return ``zone``, or an empty string if climate created the zone for a reservation."""
        return "" if self.zone_prefix and zone.startswith(self.zone_prefix) else zone

    def check_zones(self, host: str, zones: Collection[str | None]) -> None:
        """Raise Conflict if each reservation needs its own zone, but the host has a zone already.

        Nova allows one zone per host. ``zones`` are the availability zones of the host's
        aggregates.
        """
        present = sorted(zone for zone in zones if zone)
        if present and self.zone_prefix is not None:
            raise Conflict(
                f"{host} is in availability zone {present[0]}. With [nova] isolation = blazar a"
                " reservation needs a zone of its own, and Nova allows one zone per host: remove"
                " the host from that zone"
            )


def isolation(conf: ConfigOpts) -> Isolation:
    """Return the Isolation that the option ``[nova] isolation`` selects.

    The value ``blazar`` is for BlazarFilter of the package blazar-nova, which requires a zone per
    reservation and recognizes the free pool by its name. The value ``tenancy`` is for
    AggregateMultiTenancyIsolation, which is part of Nova.
    """
    if conf.nova.isolation == "blazar":
        return Isolation("blazar:owner", conf.nova.blazar_az_prefix, {})
    return Isolation("filter_tenant_id", None, {"filter_tenant_id": NOBODY})
