"""Floating IPs of Neutron, made for a project at an address that was chosen.

Both may administrators only, by Neutron's default policy. Which reservation a floating IP is of is
in its description from the moment that it is there, and in its tags a request later: owners find
theirs by these. Owners can change both, so what was made is known by its id, too.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from keystoneauth1.adapter import Adapter
from oslo_config.cfg import ConfigOpts
from requests import Response

from climate.core.errors import BackendUnavailable
from climate.core.lease import Reservation
from climate.plugins import openstack
from climate.plugins.addresses import Floatingip, Subnet

MARK = "climate"
# Blazar's tags: whoever looks for their addresses by these finds them here.
_BLAZAR = "blazar"
_RESERVATION = "reservation:"
_DESCRIPTION = f"climate {_RESERVATION}"
# So many values fit into one URL.
_CHUNK = 100
_IPV4 = 4
_REFUSED, _GONE = 400, 404


class NeutronFloatingips:
    """The FloatingipCloud of ``[neutron]``."""

    def __init__(self, conf: ConfigOpts) -> None:
        """Prepare the client; nothing is sent yet. Raises Misconfigured."""
        self._neutron: Adapter = openstack.adapter(conf, openstack.make_session(conf), "neutron")

    def subnets(self) -> Sequence[Subnet]:
        """Return the IPv4 subnets of all external networks."""
        networks = [one["id"] for one in self._list("networks", {"router:external": "True"})]
        found = self._chunks("subnets", "network_id", networks)
        return [_subnet(one) for one in found if one["ip_version"] == _IPV4]

    def floatingips(
        self, addresses: Collection[str], reservation_id: str | None = None
    ) -> Sequence[Floatingip]:
        """Return those at the addresses, and those with the tag of the reservation."""
        found = list(self._chunks("floatingips", "floating_ip_address", sorted(addresses)))
        if reservation_id is not None:
            found += self._list("floatingips", {"tags": f"{_RESERVATION}{reservation_id}"})
        return [_floatingip(one) for one in {one["id"]: one for one in found}.values()]

    def create(self, mine: Reservation, project_id: str, network_id: str, address: str) -> str:
        """Make a floating IP of the project, with a description that names the reservation."""
        wanted = {
            "floating_network_id": network_id,
            "floating_ip_address": address,
            "project_id": project_id,
            "description": f"{_DESCRIPTION}{mine.id}",
        }
        answer = self._send("POST", "floatingips", {"floatingip": wanted})
        return str(answer.json()["floatingip"]["id"])

    def mark(self, floatingip_id: str, reservation_id: str) -> None:
        """Put the tags on it that it lacks; those of its owner stay."""
        path = f"floatingips/{floatingip_id}/tags"
        before = self._send("GET", path).json()["tags"]
        wanted = {*before, _BLAZAR, MARK, f"{_RESERVATION}{reservation_id}"}
        self._send("PUT", path, {"tags": sorted(wanted)})

    def unmark(self, floatingip_id: str) -> None:
        """Remove the tags, and then the description."""
        answer = self._send("GET", f"floatingips/{floatingip_id}", missing=True)
        if answer.status_code == _GONE:
            return
        found = answer.json()["floatingip"]
        theirs = [tag for tag in found["tags"] if not _is_ours(tag)]
        if theirs != found["tags"]:
            path = f"floatingips/{floatingip_id}/tags"
            self._send("PUT", path, {"tags": theirs}, missing=True)
        if found["description"].startswith(_DESCRIPTION):
            self._change(floatingip_id, description="")

    def delete(self, floating: Floatingip) -> None:
        """Take it from its port, and delete it; fine if it is gone."""
        if floating.port_id is not None:
            self._change(floating.id, port_id=None)
        self._send("DELETE", f"floatingips/{floating.id}", missing=True)

    def _change(self, floatingip_id: str, **values: Any) -> None:
        self._send("PUT", f"floatingips/{floatingip_id}", {"floatingip": values}, missing=True)

    def _chunks(self, what: str, name: str, values: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield what has one of ``values``."""
        for at in range(0, len(values), _CHUNK):
            yield from self._list(what, {name: values[at : at + _CHUNK]})

    def _list(self, what: str, query: Mapping[str, Any]) -> list[dict[str, Any]]:
        return list(self._send("GET", what, params=query).json()[what])

    def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        missing: bool = False,
    ) -> Response:
        """Return Neutron's answer; raises BackendUnavailable with its own words if it refuses.

        With ``missing``, what is not there is no refusal.
        """
        sent = {} if body is None else {"json": body}
        with openstack.answers("Neutron"):
            answer = self._neutron.request(
                f"/v2.0/{path}", method, params=params, raise_exc=False, **sent
            )
        if answer.status_code < _REFUSED or (missing and answer.status_code == _GONE):
            return answer
        raise BackendUnavailable(f"Neutron does not do it: {_reason(answer)}")


def _is_ours(tag: str) -> bool:
    return tag in {_BLAZAR, MARK} or tag.startswith(_RESERVATION)


def _reason(answer: Response) -> str:
    """Return what an answer says in words, or else its status."""
    try:
        return str(answer.json()["NeutronError"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code} {answer.reason}"


def _subnet(found: Mapping[str, Any]) -> Subnet:
    gateway = found["gateway_ip"]
    return Subnet(
        id=found["id"],
        network_id=found["network_id"],
        cidr=IPv4Network(found["cidr"]),
        gateway=IPv4Address(gateway) if gateway else None,
        pools=[
            (IPv4Address(pool["start"]), IPv4Address(pool["end"]))
            for pool in found["allocation_pools"]
        ],
    )


def _floatingip(found: Mapping[str, Any]) -> Floatingip:
    tags, description = found.get("tags", ()), found.get("description") or ""
    named = [tag for tag in tags if tag.startswith(_RESERVATION)]
    described = [description] if description.startswith(_DESCRIPTION) else []
    names = [one.partition(_RESERVATION)[2] for one in (*named, *described)]
    return Floatingip(
        id=found["id"],
        address=found["floating_ip_address"],
        project_id=found["project_id"],
        port_id=found["port_id"],
        reservation_id=names[0] if names else None,
        is_marked=MARK in tags and bool(named),
    )
