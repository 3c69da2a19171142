"""The plug-in for ``virtual:network``: segments, which a project gets as networks.

A segment is a VLAN of a physical network, a VXLAN or the like. Segments that can be reserved must
be outside the ranges from which Neutron itself assigns segments. The request parameters are those
of Chameleon's plug-in for Blazar, plus ``on_start`` and ``on_end``.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from marshmallow import fields, validate
from oslo_config.cfg import ConfigOpts

from climate.core.errors import Conflict, NotFound
from climate.core.lease.model import Resource
from climate.core.matching import expression
from climate.core.matching.query import both
from climate.core.matching.requirement import Requirement
from climate.plugins.base import DiscoveredResource, Turn
from climate.plugins.loader import load_cloud
from climate.plugins.networking.addressing import Segment
from climate.plugins.networking.base import EndpointCloud, EndpointPlugin, EndpointSchema
from climate.plugins.request_fields import Expression, RequestSchema, titled


class NetworkCloud(EndpointCloud, Protocol):
    """Interface of a driver for a cloud in which climate reserves networks."""

    def segments(self) -> Iterable[Segment]:
        """Return the segments that the cloud can list; operators register others by their name."""


class NetworkSchema(EndpointSchema):
    """The parameters of a reservation of a network."""

    network_name = fields.String(
        required=True, validate=validate.Length(1, 255), metadata=titled("Name of the network")
    )
    network_description = fields.String(
        load_default="",
        allow_none=True,
        validate=validate.Length(max=150),
        metadata=titled("Description"),
    )
    network_properties = Expression(
        load_default="",
        allow_none=True,
        metadata=titled("Segment", "Property expression that the segment must match."),
    )
    resource_properties = Expression(
        load_default="",
        allow_none=True,
        metadata=titled("Other properties", "A second expression that the segment must match."),
    )


class NetworkPlugin(EndpointPlugin):
    """Reserves segments (VLANs and so on), and creates a network of the project on each."""

    resource_type: ClassVar[str] = "virtual:network"
    title: ClassVar[str] = "Networks"
    description: ClassVar[str] = "A network of your project on a segment of its own."
    schema: ClassVar[type[RequestSchema]] = NetworkSchema
    unit: ClassVar[Mapping[str, Any]] = {"network_name": "network"}
    details_key: ClassVar[str] = "networks"
    native_properties: frozenset[str] = frozenset(
        {"network_type", "physical_network", "segment_id"}
    )

    def __init__(self, conf: ConfigOpts, turn: Turn) -> None:
        self.cloud: NetworkCloud = load_cloud("virtual:network", conf, turn=turn)

    def requirement(self, params: Mapping[str, Any]) -> Requirement:
        query = both(
            expression.parse(params["network_properties"]),
            expression.parse(params["resource_properties"]),
        )
        return Requirement(self.resource_type, 1, 1, query, noun="segments")

    def find(
        self, *, name: str | None = None, external_number: str | None = None
    ) -> DiscoveredResource:
        """Return the segment with the name ``type:physical_network:number``.

        ``external_number`` is only for messages. Raises NotFound if ``name`` is malformed, and
        Conflict if a network is on the segment.
        """
        segment = Segment.parse(name or "")
        if segment is None:
            raise NotFound(
                f"{name or external_number} is not a segment: use TYPE:PHYSICAL_NETWORK:NUMBER"
            )
        if taken := self.cloud.occupants([str(segment)]):
            raise Conflict(f"{segment} is taken by {taken[0]}")
        return _resource(segment)

    def inventory(self) -> Iterable[DiscoveredResource]:
        return map(_resource, self.cloud.segments())

    def refresh(self, registered: Sequence[Resource]) -> Iterable[DiscoveredResource]:
        """Yield the registered segments.

        A segment is not usable if a network without a reservation is on it.
        """
        taken = self.taken(registered)
        for resource in registered:
            segment = Segment.parse(resource.external_id)
            if segment is not None:
                yield _resource(segment, usable=resource.external_id not in taken)


def _resource(segment: Segment, *, usable: bool = True) -> DiscoveredResource:
    return DiscoveredResource(
        external_id=str(segment),
        properties={
            "network_type": segment.network_type,
            "physical_network": segment.physical_network,
            "segment_id": str(segment.number),
        },
        usable=usable,
    )
