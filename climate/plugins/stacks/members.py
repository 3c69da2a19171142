"""The members of a stack: the reservations for its servers, volumes and floating IPs. Pure.

The module computes the members from the stack's contents. It also edits the template so that the
stack uses the resources of the members. The parameter ``reserves`` of the stack's reservation shows
users the members:
``{"servers": [{"flavor_id", "flavor", "amount"}], "volumes": [{"volume_type", "amount", "size"}],
"floatingips": [{"network_id", "amount", "resources"}]}``. ``size`` is the average size of a volume
in GiB, rounded up. ``resources`` are the names of the floating IPs in the template.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from climate.core.errors import InvalidInput
from climate.core.lease.model import NOTHING, PART, Reservation
from climate.plugins.base import DELETE, KEEP, Member
from climate.plugins.stacks import template
from climate.plugins.stacks.contents import Contents, Flavors, Volumes
from climate.plugins.stacks.template import Source

Reserves = dict[str, list[dict[str, Any]]]

# Key of the details of a member for volumes: the type of its volumes in Cinder.
_RESERVED_TYPE = "reserved_type"
_SERVERS, _VOLUMES, _FLOATINGIPS = "servers", "volumes", "floatingips"


def plan_reserves(
    params: Mapping[str, Any], contents: Contents, flavors: Flavors, networks: Mapping[str, str]
) -> Reserves:
    """Return the parameter ``reserves`` of a stack's reservation: what its members will reserve.

    ``networks`` contains the ids of networks by the name or id in the template. Raises InvalidInput
    for contents that cannot be reserved.
    """
    names = {id_: name for name, id_ in flavors.ids.items()}
    reserves: Reserves = {
        _SERVERS: [
            {"flavor_id": id_, "flavor": names[id_], "amount": amount}
            for id_, amount in sorted(contents.servers.items())
        ],
        _VOLUMES: _volumes(contents.volumes, params["volume_type"]),
        _FLOATINGIPS: _floatingips(contents.floatingips, networks),
    }
    _check_end(params, reserves)
    return reserves


def _volumes(contents: Mapping[str | None, Volumes], default: str | None) -> list[dict[str, Any]]:
    total: dict[str, Volumes] = {}
    for name, volumes in contents.items():
        type_ = name or default
        if type_ is None:
            raise InvalidInput(
                "A volume of the stack has no type: set volume_type in the template, or in the"
                " reservation as the default"
            )
        before = total.get(type_, Volumes(0, 0))
        total[type_] = Volumes(before.amount + volumes.amount, before.gigabytes + volumes.gigabytes)
    return [
        {
            "volume_type": type_,
            "amount": volumes.amount,
            "size": -(-volumes.gigabytes // volumes.amount),
        }
        for type_, volumes in sorted(total.items())
    ]


def _floatingips(
    contents: Mapping[str, Sequence[str]], networks: Mapping[str, str]
) -> list[dict[str, Any]]:
    by_network: dict[str, list[str]] = {}
    for network, names in contents.items():
        if network not in networks:
            raise InvalidInput(f"Network {network} of floating IP {names[0]} could not be found")
        by_network.setdefault(networks[network], []).extend(names)
    return [
        {"network_id": id_, "amount": len(names), "resources": sorted(names)}
        for id_, names in sorted(by_network.items())
    ]


def _check_end(params: Mapping[str, Any], reserves: Reserves) -> None:
    """Raise InvalidInput if the stack would keep reserved resources after the end of the lease.

    Other leases may use these resources after the end. The parameter ``on_end`` says what the stack
    keeps, and ``reserves`` contains the resources that the members reserve.
    """
    on_end = params["on_end"]
    if on_end == DELETE or params["on_start"] == NOTHING:
        return
    staying = [_VOLUMES, _FLOATINGIPS] if on_end != KEEP else list(reserves)
    if lost := [kind for kind in staying if reserves[kind]]:
        instead = "delete" if on_end != KEEP or lost != [_SERVERS] else "suspend or delete"
        raise InvalidInput(
            f"on_end {on_end} is impossible for a stack that has {' and '.join(lost)}: other leases"
            f" use their resources after the end of the lease; use {instead}"
        )


def members_of(params: Mapping[str, Any]) -> tuple[Member, ...]:
    """Return the members of a stack, as listed under ``reserves`` in its parameters."""
    reserves: Reserves = params["reserves"] or {}
    return (
        *(
            Member(
                f"servers of flavor {entry['flavor']}",
                "flavor:instance",
                {"flavor_id": entry["flavor_id"], "amount": entry["amount"]},
            )
            for entry in reserves.get(_SERVERS, ())
        ),
        *(
            Member(
                f"volumes of type {entry['volume_type']}",
                "virtual:volume",
                {**entry, "on_start": NOTHING},
            )
            for entry in reserves.get(_VOLUMES, ())
        ),
        *(
            Member(
                f"floating IPs of network {entry['network_id']}",
                "virtual:floatingip",
                {"network_id": entry["network_id"], "amount": entry["amount"]},
            )
            for entry in reserves.get(_FLOATINGIPS, ())
        ),
    )


def reserved(source: Source, params: Mapping[str, Any], members: Iterable[Reservation]) -> Source:
    """Return a copy of a stack's source that uses the resources of the member reservations.

    These resources are flavors, volume types and floating IPs.
    """
    by_name = {member.params[PART]: member for member in members}
    reserves: Reserves = params["reserves"]
    flavors: dict[str, str] = {}
    types: dict[str, str] = {}
    adopted: dict[str, str] = {}
    # ``members_of`` returns the members in the order of ``reserves``.
    entries = [entry for kind in reserves.values() for entry in kind]
    for member, entry in zip(members_of(params), entries, strict=True):
        reservation = by_name[member.name]
        match member.resource_type:
            case "flavor:instance":
                flavors |= dict.fromkeys((entry["flavor"], entry["flavor_id"]), reservation.id)
            case "virtual:volume":
                types[entry["volume_type"]] = reservation.details[_RESERVED_TYPE]
            case "virtual:floatingip":
                ids = sorted(reservation.details["floatingips"].values())
                adopted |= dict(zip(entry["resources"], ids, strict=False))
    copy = template.edited(source, template.with_flavors(flavors))
    if types:
        default = types.get(params["volume_type"])
        edit = template.with_volume_types(types, default)
        copy = template.edited(copy, edit)
    return template.adopting(copy, adopted)


def reserved_types(members: Iterable[Reservation]) -> set[str]:
    """Return the volume types that ``reserved`` puts into the source for these members."""
    details = (member.details for member in members)
    return {each[_RESERVED_TYPE] for each in details if _RESERVED_TYPE in each}
