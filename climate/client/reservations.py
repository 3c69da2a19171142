"""Requests for reservations: builders for the resource types, and alternatives of refused ones."""

from collections.abc import Mapping
from typing import Any

from climate.client.errors import Alternative, ClientError, NotEnoughResources
from climate.client.transport import moment

#: A request for one reservation: ``resource_type`` and ``params``, as the API reads it.
ReservationRequest = Mapping[str, Any]

HOST = "physical:host"
INSTANCE = "virtual:instance"
FLAVOR = "flavor:instance"
VOLUME = "virtual:volume"
FLOATINGIP = "virtual:floatingip"
NETWORK = "virtual:network"
STACK = "virtual:stack"

# The parameters that restrict which resources match.
_EXPRESSIONS = ("hypervisor_properties", "resource_properties", "network_properties")


class NoSuchAlternative(ClientError):
    """The refusal has no alternative of this number, or this client cannot request it."""


def reservation(resource_type: str, **params: Any) -> dict[str, Any]:
    """Return a request for a reservation of any type. Parameters that are None are omitted."""
    given = {name: value for name, value in params.items() if value is not None}
    return {"resource_type": resource_type, "params": given}


def hosts(minimum: int = 1, maximum: int | None = None, **params: Any) -> dict[str, Any]:
    """Return a request for ``minimum`` to ``maximum`` whole hosts (default: exactly ``minimum``).

    ``params`` are the other parameters of the type, such as ``resource_properties``.
    """
    return reservation(HOST, min=minimum, max=maximum or minimum, **params)


def instances(
    amount: int, *, vcpus: int, memory_mb: int, disk_gb: int, **params: Any
) -> dict[str, Any]:
    """Return a request for room for instances; ``memory_mb`` is in MiB, ``disk_gb`` in GiB."""
    sizes = {"vcpus": vcpus, "memory_mb": memory_mb, "disk_gb": disk_gb}
    return reservation(INSTANCE, amount=amount, **sizes, **params)


def flavor_instances(amount: int, flavor_id: str, **params: Any) -> dict[str, Any]:
    """Return a request for room for instances of a flavor."""
    return reservation(FLAVOR, amount=amount, flavor_id=flavor_id, **params)


def volumes(amount: int, volume_type: str, size: int, **params: Any) -> dict[str, Any]:
    """Return a request for volumes of ``size`` GiB each."""
    return reservation(VOLUME, amount=amount, volume_type=volume_type, size=size, **params)


def floatingips(amount: int, network_id: str, **params: Any) -> dict[str, Any]:
    """Return a request for addresses of an external network."""
    return reservation(FLOATINGIP, amount=amount, network_id=network_id, **params)


def network(network_name: str, **params: Any) -> dict[str, Any]:
    """Return a request for a network on a segment of its own."""
    return reservation(NETWORK, network_name=network_name, **params)


def stack(template: Mapping[str, Any] | str, **params: Any) -> dict[str, Any]:
    """Return a request for a stack: a Heat template as an object, or its YAML as text."""
    return reservation(STACK, template=template, **params)


def alternative_request(refusal: NotEnoughResources, number: int) -> dict[str, Any]:
    """Return the body of the request for alternative ``number`` of a refusal, from 1.

    All that the alternative does not change is as in the rejected request. Raises
    NoSuchAlternative.
    """
    alternatives = refusal.alternatives
    if not 1 <= number <= len(alternatives):
        known = f"1 to {len(alternatives)}" if alternatives else "none"
        raise NoSuchAlternative(f"There is no alternative {number}; there are: {known}.")
    alternative = alternatives[number - 1]
    if alternative.differs in {"later", "shorter"}:
        return _in_window(refusal.request, alternative)
    changed = _with_less(refusal, alternative)
    if changed is None:
        raise NoSuchAlternative(
            f"Alternative {number} ({alternative.differs}) cannot be requested from here: change"
            " the reservation, and try again."
        )
    return changed


def _in_window(body: Mapping[str, Any], alternative: Alternative) -> dict[str, Any]:
    rest = {name: value for name, value in body.items() if name not in {"duration", "end_by"}}
    window = {"end": moment(alternative.end)}
    if "start" in body:
        window["start"] = moment(alternative.start)
    return {**rest, **window}


def _with_less(refusal: NotEnoughResources, alternative: Alternative) -> dict[str, Any] | None:
    """Return the request with fewer units, or without the property expressions.

    None if the rejected request changed a lease: it may omit the reservation in question.
    """
    reservations = list(refusal.request.get("reservations", ()))
    index = refusal.reservation or 0
    if refusal.lease_id is not None or index >= len(reservations):
        return None
    chosen = reservations[index]
    if chosen["resource_type"] == STACK:  # what it reserves depends on its template
        return None
    params = dict(chosen["params"])
    if alternative.differs == "fewer":
        names = ("min", "max") if "min" in params else ("amount",)
        params.update(dict.fromkeys(names, alternative.amount))
    elif alternative.differs == "other":
        for name in _EXPRESSIONS:
            params.pop(name, None)
    else:
        return None
    reservations[index] = {**chosen, "params": params}
    return {**refusal.request, "reservations": reservations}
