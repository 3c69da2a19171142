"""``virtual:network``: segments from a pool, made networks of a project in time.

A segment is a VLAN of a physical network, or a VXLAN or the like. Those that can be reserved must
be outside the ranges from which the cloud takes segments for whoever makes a network. Parameters
are those of Chameleon's plugin, and what happens at the start and at the end.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from marshmallow import fields, post_load, validate
from oslo_config.cfg import ConfigOpts

from climate.core.errors import Conflict, NotFound
from climate.core.lease.model import Resource
from climate.core.matching import expression
from climate.core.matching.query import both
from climate.core.matching.requirement import Requirement
from climate.plugins.base import Found, RequestSchema, Turn
from climate.plugins.hosts.plugin import Expression
from climate.plugins.loader import load_cloud
from climate.plugins.networking.addressing import Segment
from climate.plugins.networking.base import PlaceCloud, PlacePlugin, PlaceSchema


class NetworkCloud(PlaceCloud, Protocol):
    """What must be known and done about networks, however a cloud does it."""

    def segments(self) -> Iterable[Segment]:
        """Return the segments that the cloud tells of; it need not know any."""


class NetworkSchema(PlaceSchema):
    """The part of a reservation request that is about a network."""

    network_name = fields.String(required=True, validate=validate.Length(1, 255))
    network_description = fields.String(
        load_default="", allow_none=True, validate=validate.Length(max=150)
    )
    network_properties = Expression(load_default="", allow_none=True)
    resource_properties = Expression(load_default="", allow_none=True)

    @post_load
    def _defaults(self, data: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
        """Read null as nothing."""
        optional = ("network_description", "network_properties", "resource_properties")
        return {**data, **{name: data[name] or "" for name in optional}}


class NetworkPlugin(PlacePlugin):
    """Segments of networks."""

    resource_type: ClassVar[str] = "virtual:network"
    schema: ClassVar[type[RequestSchema]] = NetworkSchema
    unit: ClassVar[Mapping[str, Any]] = {"network_name": "network"}
    made: ClassVar[str] = "networks"
    native_properties: frozenset[str] = frozenset(
        {"network_type", "physical_network", "segment_id"}
    )

    def __init__(self, conf: ConfigOpts, turn: Turn) -> None:
        """Load the configured cloud driver."""
        self.cloud: NetworkCloud = load_cloud("virtual:network", conf, turn=turn)

    def requirement(self, params: Mapping[str, Any]) -> Requirement:
        """One segment that matches both expressions."""
        query = both(
            expression.parse(params["network_properties"]),
            expression.parse(params["resource_properties"]),
        )
        return Requirement(self.resource_type, 1, 1, query, noun="segments")

    def find(self, *, name: str | None = None, external_number: str | None = None) -> Found:
        """Return the segment that is named ``type:physical network:number``.

        Raises Conflict if there is a network on it.
        """
        segment = Segment.parse(name or "")
        if segment is None:
            raise NotFound(f"{name or external_number} is no segment that a network can be on")
        if taken := self.cloud.takers([str(segment)]):
            raise Conflict(f"{segment} is taken by {taken[0]}")
        return _found(segment)

    def inventory(self) -> Iterable[Found]:
        """Return the segments that the cloud tells of."""
        return map(_found, self.cloud.segments())

    def look(self, registered: Sequence[Resource]) -> Iterable[Found]:
        """Return all of them: no cloud loses a number. Usable are those that nobody has taken."""
        taken = self.taken(registered)
        for resource in registered:
            segment = Segment.parse(resource.external_id)
            if segment is not None:
                yield _found(segment, usable=resource.external_id not in taken)


def _found(segment: Segment, *, usable: bool = True) -> Found:
    return Found(
        external_id=str(segment),
        properties={
            "network_type": segment.network_type,
            "physical_network": segment.physical_network,
            "segment_id": str(segment.number),
        },
        usable=usable,
    )
