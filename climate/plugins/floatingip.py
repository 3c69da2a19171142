"""``virtual:floatingip``: addresses of external networks, made floating IPs of a project in time.

An address that can be reserved lies in a subnet of an external network and outside its allocation
pools, so that the cloud gives it to nobody by itself. Parameters are those of Blazar's plugin, and
two of ours: what happens at the start and at the end.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from ipaddress import AddressValueError, IPv4Address
from typing import Any, ClassVar, Protocol

from marshmallow import ValidationError, fields, post_load, validate, validates_schema
from oslo_config.cfg import ConfigOpts

from climate.core.errors import Conflict, InvalidInput, NotFound
from climate.core.lease import Lease, Reservation, Resource
from climate.core.query import And, Compare, In, Not, Operand, Query
from climate.core.requirement import Requirement
from climate.plugins.addresses import Floatingip, Subnet
from climate.plugins.base import (
    Difference,
    Expected,
    Found,
    RequestSchema,
    ResourcePlugin,
    Turn,
    do_all,
)
from climate.plugins.floatingip_audit import differences
from climate.plugins.host import WholeNumber
from climate.plugins.loader import load_floatingip_cloud

# Bounds one request: each is a call or two to the cloud when the lease starts.
MAX_FLOATINGIPS = 1_000
CREATE, NOTHING = "create", "nothing"
DELETE, KEEP = "delete", "keep"
# The key of a reservation's details under which are the ids of its floating IPs by address.
MADE = "floatingips"


class Taken(RuntimeError):
    """Somebody else has the address."""


class FloatingipCloud(Protocol):
    """What must be known and done about floating IPs, however a cloud does it."""

    def subnets(self) -> Sequence[Subnet]:
        """Return the IPv4 subnets of all external networks."""

    def floatingips(
        self, addresses: Collection[str], reservation_id: str | None = None
    ) -> Sequence[Floatingip]:
        """Return those that have one of ``addresses`` or are marked as the reservation's."""

    def create(self, mine: Reservation, project_id: str, network_id: str, address: str) -> str:
        """Make a floating IP that can be told to be the reservation's; return its id.

        Fails if the address is taken.
        """

    def mark(self, floatingip_id: str, reservation_id: str) -> None:
        """Show its owner which reservation it is of; may be done again."""

    def unmark(self, floatingip_id: str) -> None:
        """Leave it to its owner, as if it had never been of a reservation; fine if it is gone."""

    def delete(self, floating: Floatingip) -> None:
        """Take it away from whatever port it is at, and delete it; fine if it is gone."""


class Addresses(fields.Field[list[str]]):
    """IPv4 addresses, each once; null and the empty text are none."""

    def _deserialize(self, value: Any, *_args: Any, **_kwargs: Any) -> list[str]:  # noqa: ANN401
        if value == "":
            return []
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise ValidationError("Must be a list of IPv4 addresses")
        return list(dict.fromkeys(str(_address(text)) for text in value))


class FloatingipSchema(RequestSchema):
    """The part of a reservation request that is about floating IPs."""

    network_id = fields.String(required=True, validate=validate.Length(1, 255))
    amount = WholeNumber(load_default=1, validate=validate.Range(1, MAX_FLOATINGIPS))
    required_floatingips = Addresses(load_default=list, allow_none=True)
    on_start = fields.String(
        load_default=CREATE, allow_none=True, validate=validate.OneOf([CREATE, NOTHING])
    )
    on_end = fields.String(
        load_default=DELETE, allow_none=True, validate=validate.OneOf([DELETE, KEEP])
    )

    @validates_schema
    def _enough(self, data: dict[str, Any], **_kwargs: Any) -> None:
        if len(data["required_floatingips"] or ()) > data["amount"]:
            raise ValidationError("Must be as many as required_floatingips, at least", "amount")

    @post_load
    def _defaults(self, data: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
        """Read null as the default."""
        defaults = {"on_start": CREATE, "on_end": DELETE, "required_floatingips": []}
        return {**data, **{name: data[name] or default for name, default in defaults.items()}}


class FloatingipPlugin(ResourcePlugin):
    """Addresses of external networks."""

    resource_type: ClassVar[str] = "virtual:floatingip"
    schema: ClassVar[type[RequestSchema]] = FloatingipSchema
    unit: ClassVar[Mapping[str, Any]] = {"amount": 1}
    native_properties: frozenset[str] = frozenset({"network_id", "subnet_id", "address"})

    def __init__(self, conf: ConfigOpts, turn: Turn) -> None:
        """Load the cloud that ``conf`` names, which may need the turn."""
        self.cloud: FloatingipCloud = load_floatingip_cloud(conf, turn)

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

    def start(
        self, lease: Lease, reservation: Reservation, resources: Sequence[Resource]
    ) -> Mapping[str, Any]:
        """Make them floating IPs of the project, unless they are only promised.

        An address that fails joins when it works.
        """
        if reservation.params["on_start"] == NOTHING:
            return {}
        there = self._there(reservation, resources)
        mine = {one.address: one for one in there if _is_of(one, lease, reservation)}
        others = {one.address: one for one in there if one.address not in mine}
        wanted = {one.external_id for one in resources}
        do_all(*(partial(self.cloud.delete, mine[one]) for one in mine.keys() - wanted))
        made: dict[str, str] = {}

        def ensure(resource: Resource) -> None:
            address = resource.external_id
            if address in others:
                raise Taken(f"{address} is taken by {others[address]}")
            made[address] = self._made(lease, reservation, resource, mine.get(address))

        working = [one for one in resources if one.reservable or one.external_id in mine]
        do_all(*(partial(ensure, resource) for resource in working))
        return {MADE: made}

    def _made(
        self, lease: Lease, reservation: Reservation, resource: Resource, there: Floatingip | None
    ) -> str:
        """Return the id of the floating IP at an address, made and marked if need be."""
        if there is not None and there.is_marked:
            return there.id
        network_id = resource.properties["network_id"]
        floatingip_id = (
            there.id
            if there is not None
            else self.cloud.create(reservation, lease.project_id, network_id, resource.external_id)
        )
        self.cloud.mark(floatingip_id, reservation.id)
        return floatingip_id

    def end(self, lease: Lease, reservation: Reservation, resources: Sequence[Resource]) -> None:
        """Delete them, wherever they are in use, or leave them to the project."""
        there = self._there(reservation, resources)
        mine = [one for one in there if _is_of(one, lease, reservation)]
        if reservation.params["on_end"] == KEEP:
            do_all(*(partial(self.cloud.unmark, one.id) for one in mine))
        else:
            do_all(*(partial(self.cloud.delete, one) for one in mine))

    def _there(
        self, reservation: Reservation, resources: Sequence[Resource]
    ) -> Sequence[Floatingip]:
        addresses = {one.external_id for one in resources} | _known(reservation).keys()
        return self.cloud.floatingips(sorted(addresses), reservation.id)

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
        if taken := self.cloud.floatingips([found.external_id]):
            raise Conflict(f"{found.external_id} is taken by {taken[0]}")
        return found

    def inventory(self) -> Iterable[Found]:
        """Yield all addresses outside the allocation pools, taken or not."""
        return (_found(one, subnet) for subnet in self.cloud.subnets() for one in subnet.spare())

    def look(self, registered: Sequence[Resource]) -> Iterable[Found]:
        """Return those whose subnet is there; usable are those that nobody else has taken."""
        subnets = self.cloud.subnets()
        addresses = [one.external_id for one in registered]
        there = self.cloud.floatingips(addresses) if addresses else []
        taken = {one.address for one in there if one.reservation_id is None}
        for resource in registered:
            address, network_id = (
                IPv4Address(resource.external_id),
                resource.properties["network_id"],
            )
            for subnet in subnets:
                if subnet.network_id == network_id and address in subnet.cidr:
                    usable = subnet.refusal(address) is None and resource.external_id not in taken
                    yield _found(address, subnet, usable=usable)

    def audit(self, expected: Callable[[], Expected]) -> Iterable[Difference]:
        """Compare the floating IPs at registered addresses with what leases have."""
        return differences(self.cloud, expected)


def _known(reservation: Reservation) -> Mapping[str, str]:
    """Return the ids of the floating IPs that were made for the reservation, by address."""
    found: Mapping[str, str] = reservation.details.get(MADE, {})
    return found


def _is_of(one: Floatingip, lease: Lease, reservation: Reservation) -> bool:
    """Tell whether a floating IP is the reservation's, also if its owner removed the marks.

    Where addresses were only promised, whatever the project made of them is.
    """
    if one.project_id != lease.project_id:
        return False
    if one.reservation_id is None and reservation.params["on_start"] == NOTHING:
        return True
    return one.reservation_id == reservation.id or one.id in _known(reservation).values()


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
