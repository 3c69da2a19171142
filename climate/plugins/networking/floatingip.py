"""``virtual:floatingip``: addresses of external networks, made floating IPs of a project in time.

An address that can be reserved lies in a subnet of an external network and outside its allocation
pools, so that the cloud gives it to nobody by itself. Parameters are those of Blazar's plugin, and
two of ours: what happens at the start and at the end.
"""

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import AddressValueError, IPv4Address
from typing import Any, ClassVar, Protocol

from marshmallow import ValidationError, fields, post_load, validate, validates_schema
from oslo_config.cfg import ConfigOpts

from climate.core.errors import Conflict, InvalidInput, NotFound
from climate.core.lease.model import Resource
from climate.core.matching.query import And, Compare, In, Not, Operand, Query
from climate.core.matching.requirement import Requirement
from climate.plugins.base import (
    Found,
    RequestSchema,
    Turn,
)
from climate.plugins.hosts.plugin import WholeNumber
from climate.plugins.loader import load_cloud
from climate.plugins.networking.addressing import Subnet
from climate.plugins.networking.base import PlaceCloud, PlacePlugin, PlaceSchema

# Bounds one request: each is a call or two to the cloud when the lease starts.
MAX_FLOATINGIPS = 1_000


class FloatingipCloud(PlaceCloud, Protocol):
    """What must be known and done about floating IPs, however a cloud does it."""

    def subnets(self) -> Sequence[Subnet]:
        """Return the IPv4 subnets of all external networks."""


class Addresses(fields.Field[list[str]]):
    """IPv4 addresses, each once; null and the empty text are none."""

    def _deserialize(self, value: Any, *_args: Any, **_kwargs: Any) -> list[str]:  # noqa: ANN401
        if value == "":
            return []
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise ValidationError("Must be a list of IPv4 addresses")
        return list(dict.fromkeys(str(_address(text)) for text in value))


class FloatingipSchema(PlaceSchema):
    """The part of a reservation request that is about floating IPs."""

    network_id = fields.String(required=True, validate=validate.Length(1, 255))
    amount = WholeNumber(load_default=1, validate=validate.Range(1, MAX_FLOATINGIPS))
    required_floatingips = Addresses(load_default=list, allow_none=True)

    @validates_schema
    def _enough(self, data: dict[str, Any], **_kwargs: Any) -> None:
        if len(data["required_floatingips"] or ()) > data["amount"]:
            raise ValidationError("Must be as many as required_floatingips, at least", "amount")

    @post_load
    def _defaults(self, data: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
        """Read null as none."""
        return {**data, "required_floatingips": data["required_floatingips"] or []}


class FloatingipPlugin(PlacePlugin):
    """Addresses of external networks."""

    resource_type: ClassVar[str] = "virtual:floatingip"
    schema: ClassVar[type[RequestSchema]] = FloatingipSchema
    unit: ClassVar[Mapping[str, Any]] = {"amount": 1}
    made: ClassVar[str] = "floatingips"
    native_properties: frozenset[str] = frozenset({"network_id", "subnet_id", "address"})

    def __init__(self, conf: ConfigOpts, turn: Turn) -> None:
        """Load the configured cloud driver."""
        self.cloud: FloatingipCloud = load_cloud("virtual:floatingip", conf, turn=turn)

    def requirement(self, params: Mapping[str, Any]) -> Requirement:
        """Those that are named, and besides as many others of the network as are missing."""
        network = Compare("==", "network_id", Operand(params["network_id"]), "text")
        named: list[str] = params["required_floatingips"]
        if not named:
            return self._some(params["amount"], network, "floating IPs")
        among = In("address", tuple(Operand(address) for address in named))
        others = params["amount"] - len(named)
        besides = self._some(
            others, And((network, Not(among))), "floating IPs besides the required ones"
        )
        return self._some(
            len(named),
            And((network, among)),
            "of the required floating IPs",
            besides if others else None,
        )

    def _some(
        self, count: int, query: Query, noun: str, besides: Requirement | None = None
    ) -> Requirement:
        return Requirement(self.resource_type, count, count, query, besides=besides, noun=noun)

    def find(self, *, name: str | None = None, external_number: str | None = None) -> Found:
        """Return the address, or that of a network if the name is ``network_id/address``.

        Raises InvalidInput for one that cannot be reserved, Conflict for one that is taken.
        """
        if not name:
            raise NotFound(f"Floating IP {external_number} not found.")
        network_id = name.rpartition("/")[0]
        subnets = self.cloud.subnets()
        if network_id:
            subnets = [one for one in subnets if one.network_id == network_id]
            if not subnets:
                raise InvalidInput(f"{network_id} is no external network with an IPv4 subnet")
        found = _described(name, subnets, strict=bool(network_id))
        for one in self.cloud.takers([found.external_id]):
            if one.network_id in {None, found.properties["network_id"]}:
                raise Conflict(f"{found.external_id} is taken by {one}")
        return found

    def inventory(self) -> Iterable[Found]:
        """Yield all addresses outside the allocation pools, taken or not."""
        return (_found(one, subnet) for subnet in self.cloud.subnets() for one in subnet.spare())

    def look(self, registered: Sequence[Resource]) -> Iterable[Found]:
        """Return those whose subnet is there; usable are those that nobody else has taken."""
        subnets = self.cloud.subnets()
        taken = self.taken(registered)
        for resource in registered:
            address = IPv4Address(resource.external_id)
            for subnet in subnets:
                its = subnet.network_id == resource.properties["network_id"]
                if its and address in subnet.cidr:
                    usable = subnet.refusal(address) is None and resource.external_id not in taken
                    yield _found(address, subnet, usable=usable)


def _address(text: str) -> IPv4Address:
    try:
        return IPv4Address(text)
    except AddressValueError as error:
        raise ValidationError(f"{text!r} is no IPv4 address: {error}") from None


def _described(name: str, subnets: Sequence[Subnet], *, strict: bool) -> Found:
    """Return the address that ``name`` ends with; raises NotFound, or InvalidInput if strict."""
    refused = InvalidInput if strict else NotFound
    try:
        address = IPv4Address(name.rpartition("/")[2])
    except AddressValueError as error:
        raise refused(f"{name}: {error}") from None
    for subnet in subnets:
        if address in subnet.cidr:
            if reason := subnet.refusal(address):
                raise InvalidInput(reason)
            return _found(address, subnet)
    raise refused(f"{address} is in no subnet of an external network that is meant")


def _found(address: IPv4Address, subnet: Subnet, *, usable: bool = True) -> Found:
    return Found(
        external_id=str(address),
        properties={
            "network_id": subnet.network_id,
            "subnet_id": subnet.id,
            "address": str(address),
        },
        usable=usable,
    )
