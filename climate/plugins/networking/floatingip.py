"""The plug-in for ``virtual:floatingip``: addresses, which a project gets as floating IPs.

The addresses are in a subnet of an external network and outside the subnet's allocation pools, so
that Neutron never assigns them itself. The request parameters are those of Blazar's plug-in, plus
``on_start`` and ``on_end``.
"""

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Any, ClassVar, Protocol

from marshmallow import ValidationError, fields, validate, validates_schema
from oslo_config.cfg import ConfigOpts

from climate.core.errors import Conflict, InvalidInput, Ipv6NotSupported, NotFound
from climate.core.lease.model import Resource
from climate.core.matching.query import And, Compare, In, Not, Operand, Query
from climate.core.matching.requirement import Requirement
from climate.plugins.base import DiscoveredResource, Turn
from climate.plugins.loader import load_cloud
from climate.plugins.networking.addressing import Subnet
from climate.plugins.networking.base import EndpointCloud, EndpointPlugin, EndpointSchema
from climate.plugins.request_fields import RequestSchema, WholeNumber, titled

# Limits one request: each address requires one or two calls to the cloud at the start.
MAX_FLOATINGIPS = 1_000


class FloatingipCloud(EndpointCloud, Protocol):
    """Interface of a driver for a cloud in which climate reserves floating IPs."""

    def subnets(self) -> Sequence[Subnet]:
        """Return the IPv4 subnets of all external networks."""


class Addresses(fields.Field[list[str]]):
    """A field for a list of IPv4 addresses as text, without duplicates; "" is the empty list."""

    def __init__(self, **kwargs: Any) -> None:
        form = {"type": "array", "items": {"type": "string", "format": "ipv4"}}
        super().__init__(**{**kwargs, "metadata": {**form, **kwargs.get("metadata", {})}})

    def _deserialize(self, value: Any, *_args: Any, **_kwargs: Any) -> list[str]:  # noqa: ANN401
        if value == "":
            return []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise ValidationError("Must be a list of IPv4 addresses")
        return list(dict.fromkeys(str(self._address(text)) for text in value))

    def _address(self, text: str) -> IPv4Address:
        try:
            return parse_address(text)
        except AddressValueError as error:
            raise ValidationError(f"{text!r} is not an IPv4 address: {error}") from None
        except Ipv6NotSupported as error:
            error.place = (str(self.name),)
            raise


class FloatingipSchema(EndpointSchema):
    """The parameters of a reservation of floating IPs."""

    network_id = fields.String(
        required=True,
        validate=validate.Length(1, 255),
        metadata=titled("External network", "Id of the network."),
    )
    amount = WholeNumber(
        load_default=1,
        validate=validate.Range(1, MAX_FLOATINGIPS),
        metadata=titled("Floating IPs"),
    )
    required_floatingips = Addresses(
        load_default=list,
        allow_none=True,
        metadata=titled("Required addresses", "These addresses are among the floating IPs."),
    )

    @validates_schema
    def _enough(self, data: dict[str, Any], **_kwargs: Any) -> None:
        if len(data["required_floatingips"] or ()) > data["amount"]:
            raise ValidationError("Must be as many as required_floatingips, at least", "amount")


class FloatingipPlugin(EndpointPlugin):
    """Reserves addresses of external networks, and creates floating IPs with them."""

    resource_type: ClassVar[str] = "virtual:floatingip"
    title: ClassVar[str] = "Floating IPs"
    description: ClassVar[str] = "Addresses of an external network for your project."
    schema: ClassVar[type[RequestSchema]] = FloatingipSchema
    unit: ClassVar[Mapping[str, Any]] = {"amount": 1}
    details_key: ClassVar[str] = "floatingips"
    native_properties: frozenset[str] = frozenset({"network_id", "subnet_id", "address"})

    def __init__(self, conf: ConfigOpts, turn: Turn) -> None:
        self.cloud: FloatingipCloud = load_cloud("virtual:floatingip", conf, turn=turn)

    def requirement(self, params: Mapping[str, Any]) -> Requirement:
        network = Compare("==", "network_id", Operand(params["network_id"]), "text")
        required: list[str] = params["required_floatingips"]
        if not required:
            return self._requirement(params["amount"], network, "floating IPs")
        in_required = In("address", tuple(Operand(address) for address in required))
        others = params["amount"] - len(required)
        besides = self._requirement(
            others, And((network, Not(in_required))), "floating IPs besides the required ones"
        )
        return self._requirement(
            len(required),
            And((network, in_required)),
            "of the required floating IPs",
            besides if others else None,
        )

    def _requirement(
        self, count: int, query: Query, noun: str, besides: Requirement | None = None
    ) -> Requirement:
        return Requirement(self.resource_type, count, count, query, besides=besides, noun=noun)

    def find(
        self, *, name: str | None = None, external_number: str | None = None
    ) -> DiscoveredResource:
        """Return the address with this name, which is ``address`` or ``network_id/address``.

        ``external_number`` is only for messages. Raises Conflict if a floating IP has the address,
        and InvalidInput if the address is malformed or cannot be reserved. If no subnet has the
        address, raises InvalidInput if ``name`` includes a network, and NotFound otherwise. Raises
        Ipv6NotSupported.
        """
        if not name:
            raise NotFound(f"Floating IP {external_number} not found.")
        network_id, _, text = name.rpartition("/")
        parsed = _parse_name(text)
        subnets = self.cloud.subnets()
        if network_id:
            subnets = [subnet for subnet in subnets if subnet.network_id == network_id]
            if not subnets:
                raise InvalidInput(f"{network_id} is not an external network with an IPv4 subnet")
        address = _find_in(subnets, parsed, strict=bool(network_id))
        for occupant in self.cloud.occupants([address.external_id]):
            if occupant.network_id in {None, address.properties["network_id"]}:
                raise Conflict(f"{address.external_id} is taken by {occupant}")
        return address

    def inventory(self) -> Iterable[DiscoveredResource]:
        subnets = self.cloud.subnets()
        return (_resource(each, subnet) for subnet in subnets for each in subnet.spare())

    def refresh(self, registered: Sequence[Resource]) -> Iterable[DiscoveredResource]:
        """Yield the registered addresses whose subnet exists.

        An address is not ``usable`` in two cases: a floating IP without a reservation has it, or
        its subnet has changed so that Neutron itself now uses or assigns it (``Subnet.refusal``).
        """
        subnets = self.cloud.subnets()
        taken = self.taken(registered)
        for resource in registered:
            address = IPv4Address(resource.external_id)
            for subnet in subnets:
                same_network = subnet.network_id == resource.properties["network_id"]
                if same_network and address in subnet.cidr:
                    usable = subnet.refusal(address) is None and resource.external_id not in taken
                    yield _resource(address, subnet, usable=usable)


def parse_address(text: str) -> IPv4Address:
    """Return the IPv4 address in ``text``.

    Raises AddressValueError. If the text is an IPv6 address, raises Ipv6NotSupported: Neutron
    creates a floating IP only with an IPv4 address, in a network that has an IPv4 subnet
    (``_create_floatingip`` in neutron/db/l3_db.py).
    """
    try:
        refused = IPv6Address(text)
    except AddressValueError:
        return IPv4Address(text)
    raise Ipv6NotSupported(
        f"{refused} is an IPv6 address, and floating IPs have only IPv4 addresses. Servers get IPv6"
        " addresses from an IPv6 subnet of their network"
    )


def _parse_name(text: str) -> IPv4Address:
    try:
        return parse_address(text)
    except AddressValueError:
        raise InvalidInput(
            f"{text!r} is not an IPv4 address: send an address such as 203.0.113.7, or"
            " <network id>/203.0.113.7"
        ) from None


def _find_in(
    subnets: Sequence[Subnet], address: IPv4Address, *, strict: bool
) -> DiscoveredResource:
    """Return the address as a resource. Raises InvalidInput if it cannot be reserved.

    If none of ``subnets`` has the address, raises InvalidInput if ``strict`` is true, and NotFound
    otherwise.
    """
    error_class = InvalidInput if strict else NotFound
    for subnet in subnets:
        if address in subnet.cidr:
            if reason := subnet.refusal(address):
                raise InvalidInput(reason)
            return _resource(address, subnet)
    raise error_class(f"{address} is in no subnet of an external network with IPv4")


def _resource(address: IPv4Address, subnet: Subnet, *, usable: bool = True) -> DiscoveredResource:
    return DiscoveredResource(
        external_id=str(address),
        properties={
            "network_id": subnet.network_id,
            "subnet_id": subnet.id,
            "address": str(address),
        },
        usable=usable,
    )
