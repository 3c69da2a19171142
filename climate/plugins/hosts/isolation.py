"""The two ways to keep all projects but one off a host with filters of Nova's scheduler. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from oslo_config.cfg import ConfigOpts

from climate.core.errors import Conflict

# An id that no project can have: Keystone's ids are 32 hexadecimal digits.
NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Isolation:
    """What the scheduler's filter reads in the metadata of host aggregates.

    ``owner_key`` is the metadata key of the owning project, ``zone_prefix`` the prefix of a
    reservation's availability zone (None: no zone), ``free`` the metadata that closes the free
    pool. With ``nodes``, climate can reserve single nodes of a service that has several.
    """

    owner_key: str
    zone_prefix: str | None
    free: Mapping[str, str]
    nodes: bool

    def operators_zone(self, zone: str) -> str:
        """Return an availability zone, or "" if it is the zone of a reservation."""
        return "" if self.zone_prefix and zone.startswith(self.zone_prefix) else zone

    def check_zones(self, host: str, zones: Collection[str | None]) -> None:
        """Raise Conflict if Nova could not move the host into a reservation's zone later."""
        present = sorted(zone for zone in zones if zone)
        if present and self.zone_prefix is not None:
            raise Conflict(
                f"{host} is in availability zone {present[0]}. With [nova] isolation = blazar a"
                " reservation needs a zone of its own, and Nova allows one zone per host: remove"
                " the host from that zone"
            )


def isolation(conf: ConfigOpts) -> Isolation:
    """Return the isolation of ``[nova] isolation``.

    ``blazar`` is for the filter of the package blazar-nova, which needs the zone and knows the
    free pool by its name. ``tenancy`` is for Nova's own AggregateMultiTenancyIsolation.
    """
    if conf.nova.isolation == "blazar":
        return Isolation("blazar:owner", conf.nova.blazar_az_prefix, {}, nodes=False)
    return Isolation("filter_tenant_id", None, {"filter_tenant_id": NOBODY}, nodes=True)
