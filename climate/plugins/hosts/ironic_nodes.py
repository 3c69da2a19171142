"""Reads from Ironic what Nova does not report about bare-metal nodes.

This is the maintenance, the sizes, the resource class and the provision state of a node.

Nova names a node of Ironic by its UUID. Without an Ironic in the catalog, or if it does not answer,
climate uses what Nova reports.
"""

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from keystoneauth1.adapter import Adapter

from climate.core.errors import BackendUnavailable
from climate.core.provisioning.cleaning import RESOURCE_CLASS, NodeState, Report
from climate.plugins.openstack import session

LOG = logging.getLogger(__name__)

# Since 1.21 nodes have a resource class. Ironic of OpenStack Ocata has it.
MICROVERSION = "1.21"
_TYPE = "ironic"
_SINCE = "provision_updated_at"
_FIELDS = f"uuid,maintenance,properties,resource_class,provision_state,{_SINCE}"
# The properties of a node in Ironic, by the names of Nova for hypervisors.
_SIZES = {"vcpus": "cpus", "memory_mb": "memory_mb", "local_gb": "local_gb"}
#: The key under which ``complete`` stores whether a node is in maintenance.
MAINTENANCE = "maintenance"
#: The key under which ``complete`` stores the provision state, as a Report.
PROVISION = "provision"
# Provision states of Ironic 39 (ironic/common/states.py). All others need an operator.
_STATES = {
    "available": NodeState.AVAILABLE,
    "deleting": NodeState.CLEANING,
    "cleaning": NodeState.CLEANING,
    "clean wait": NodeState.CLEANING,
    "clean hold": NodeState.CLEANING,
    "deploying": NodeState.IN_USE,
    "wait call-back": NodeState.IN_USE,
    "deploy hold": NodeState.IN_USE,
    "deploy failed": NodeState.IN_USE,
    "active": NodeState.IN_USE,
}

Node = Mapping[str, Any]


class IronicNodes:
    """Completes the nodes of Ironic, as Nova reports them. Keeps the last answer of Ironic."""

    def __init__(self, ironic: Adapter) -> None:
        self._ironic = ironic
        self._known: Mapping[str, Node] = {}
        self._has_warned = False

    def complete(self, nodes: Iterable[Node]) -> list[Node]:
        """Return ``nodes`` of Nova, those of Ironic with their sizes and their maintenance."""
        given = list(nodes)
        if not any(map(is_bare_metal, given)):
            return given
        try:
            self._known = {node["uuid"]: node for node in self._all()}
        except BackendUnavailable as error:  # also if the catalog has no Ironic
            LOG.warning("cannot read sizes and maintenance of bare-metal nodes: %s", error)
            # The last states are not the present ones.
            self._known = {id_: {**node, _SINCE: None} for id_, node in self._known.items()}
        else:
            self._warn_if_hidden(given)
        return [with_facts(node, self._known) if is_bare_metal(node) else node for node in given]

    def _warn_if_hidden(self, nodes: Iterable[Node]) -> None:
        """Log once that Ironic shows none of the nodes: climate's user may lack a role."""
        names = {node["hypervisor_hostname"] for node in nodes if is_bare_metal(node)}
        if names.isdisjoint(self._known) and not self._has_warned:
            self._has_warned = True
            LOG.warning(
                "Ironic shows climate none of %s nodes: give the user of [service_user] the role"
                " 'service', or set sizes in [nova] node_capabilities",
                len(names),
            )

    def _all(self) -> Iterable[Node]:
        query = {"fields": _FIELDS}
        while True:
            page = session.send(self._ironic, "Ironic", "GET", "/v1/nodes", params=query).json()
            yield from page["nodes"]
            if not page.get("next"):
                return
            query = {**query, "marker": page["nodes"][-1]["uuid"]}


def is_bare_metal(node: Node) -> bool:
    """Return whether a node of Nova belongs to Ironic."""
    return bool(node.get("hypervisor_type") == _TYPE)


def with_facts(node: Node, known: Mapping[str, Node]) -> Node:
    """Return a node of Nova with what Ironic knows about it. Pure.

    ``known`` contains the nodes of Ironic by UUID. A size that is no whole number is left out.
    """
    found = known.get(node["hypervisor_hostname"])
    if found is None:
        return node
    properties = found.get("properties") or {}
    sizes = {name: _number(properties.get(own)) for name, own in _SIZES.items()}
    given = {name: number for name, number in sizes.items() if number is not None}
    return {
        **node,
        **given,
        MAINTENANCE: bool(found.get("maintenance")),
        RESOURCE_CLASS: found.get("resource_class"),
        PROVISION: _report(found),
    }


def _report(found: Node) -> Report | None:
    since = found.get(_SINCE)
    if not since:
        return None
    state = _STATES.get(found["provision_state"], NodeState.FAILED)
    return Report(state, datetime.fromisoformat(since).astimezone(UTC))


def _number(value: Any) -> int | None:  # noqa: ANN401 - an operator's text or number
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() else None
