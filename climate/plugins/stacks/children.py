"""From what a stack consists of to what is reserved, and back into its template. Pure.

``reserves``, a parameter of the stack's reservation, is what users see of it:
``{"servers": [{"flavor_id", "flavor", "amount"}], "volumes": [{"volume_type", "amount", "size"}],
"floatingips": [{"network_id", "network", "resources"}]}``; sizes are GiB of one volume, on average.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from climate.core.errors import InvalidInput
from climate.core.lease.model import PART, Reservation
from climate.plugins.base import Child
from climate.plugins.networking.base import DELETE, KEEP, NOTHING
from climate.plugins.stacks import template
from climate.plugins.stacks.contents import Contents, Flavors, Volumes
from climate.plugins.stacks.template import Source

Reserves = dict[str, list[dict[str, Any]]]

_SERVERS, _VOLUMES, _FLOATINGIPS = "servers", "volumes", "floatingips"


def planned(
    params: Mapping[str, Any], contents: Contents, flavors: Flavors, networks: Mapping[str, str]
) -> Reserves:
    """Return what is to be reserved; raises InvalidInput for what cannot be."""
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


def _volumes(found: Mapping[str | None, Volumes], default: str | None) -> list[dict[str, Any]]:
    total: dict[str, Volumes] = {}
    for named, some in found.items():
        type_ = named or default
        if type_ is None:
            raise InvalidInput(
                "A volume of the stack is of no type: name a volume_type that can be reserved, in"
                " the template for each or in the reservation for all such"
            )
        before = total.get(type_, Volumes(0, 0))
        total[type_] = Volumes(before.amount + some.amount, before.gigabytes + some.gigabytes)
    return [
        {"volume_type": type_, "amount": all_.amount, "size": -(-all_.gigabytes // all_.amount)}
        for type_, all_ in sorted(total.items())
    ]


def _floatingips(
    found: Mapping[str, Sequence[str]], networks: Mapping[str, str]
) -> list[dict[str, Any]]:
    by_network: dict[str, list[str]] = {}
    for network, names in found.items():
        if network not in networks:
            raise InvalidInput(f"Network {network} of floating IP {names[0]} could not be found")
        by_network.setdefault(networks[network], []).extend(names)
    return [
        {"network_id": id_, "amount": len(names), "resources": sorted(names)}
        for id_, names in sorted(by_network.items())
    ]


def _check_end(params: Mapping[str, Any], reserves: Reserves) -> None:
    """Raise InvalidInput if at the end more is to stay than can."""
    on_end = params["on_end"]
    if on_end == DELETE or params["on_start"] == NOTHING:
        return
    staying = [_VOLUMES, _FLOATINGIPS] if on_end != KEEP else list(reserves)
    if lost := [what for what in staying if reserves[what]]:
        instead = "delete" if on_end != KEEP or lost != [_SERVERS] else "suspend or delete"
        raise InvalidInput(
            f"on_end {on_end} is impossible for a stack that has {' and '.join(lost)}: the room"
            f" that these are in is somebody else's after the end of the lease; use {instead}"
        )


def children_of(params: Mapping[str, Any]) -> tuple[Child, ...]:
    """Return the reservations that a stack needs."""
    reserves: Reserves = params["reserves"] or {}
    return (
        *(
            Child(
                f"servers of flavor {one['flavor']}",
                "flavor:instance",
                {"flavor_id": one["flavor_id"], "amount": one["amount"]},
            )
            for one in reserves.get(_SERVERS, ())
        ),
        *(
            Child(f"volumes of type {one['volume_type']}", "virtual:volume", {**one, **_NOTHING})
            for one in reserves.get(_VOLUMES, ())
        ),
        *(
            Child(
                f"floating IPs of network {one['network_id']}",
                "virtual:floatingip",
                {"network_id": one["network_id"], "amount": one["amount"]},
            )
            for one in reserves.get(_FLOATINGIPS, ())
        ),
    )


_NOTHING = {"on_start": NOTHING}


def reserved(source: Source, params: Mapping[str, Any], children: Iterable[Reservation]) -> Source:
    """Return the source of a stack of which all is on reserved room."""
    parts = {one.params[PART]: one for one in children}
    reserves: Reserves = params["reserves"]
    flavors: dict[str, str] = {}
    types: dict[str, str] = {}
    adopted: dict[str, str] = {}
    # As children_of has them.
    asked = zip(
        children_of(params), (one for some in reserves.values() for one in some), strict=True
    )
    for child, one in asked:
        mine = parts[child.name]
        match child.resource_type:
            case "flavor:instance":
                flavors |= dict.fromkeys((one["flavor"], one["flavor_id"]), mine.id)
            case "virtual:volume":
                types[one["volume_type"]] = mine.details["reserved_type"]
            case "virtual:floatingip":
                made = sorted(mine.details["floatingips"].values())
                adopted |= dict(zip(one["resources"], made, strict=False))
    copy = template.edited(source, template.with_flavors(flavors))
    if types:
        default = types.get(params["volume_type"])
        edit = template.with_volume_types(types, default)
        copy = template.edited(copy, edit)
    return template.adopting(copy, adopted)
