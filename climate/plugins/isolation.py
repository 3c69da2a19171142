"""The two ways in which Nova's scheduler is told to keep everybody but the owner off. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from oslo_config.cfg import ConfigOpts

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


def isolation(conf: ConfigOpts) -> Isolation:
    """Return what ``[nova] isolation`` means: whose filter reads the aggregates, and what in them.

    ``blazar`` is for the filter of the package blazar-nova, which needs the zone and takes the
    free pool by its name; ``tenancy`` for Nova's own AggregateMultiTenancyIsolation.
    """
    if conf.nova.isolation == "blazar":
        return Isolation("blazar:owner", conf.nova.blazar_az_prefix, {}, nodes=False)
    return Isolation("filter_tenant_id", None, {"filter_tenant_id": NOBODY}, nodes=True)
