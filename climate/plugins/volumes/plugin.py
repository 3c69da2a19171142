"""The plug-in for ``virtual:volume``: capacity for volumes of a volume type.

An operator registers a private volume type that no project can use. A reservation is for a number
of volumes of one size and type. At the start, the lease's project gets a reserved volume type of
its own (``climate.plugins.volumes.cloud``), in which climate or the project creates the volumes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from marshmallow import ValidationError, fields, pre_load, validate, validates_schema
from oslo_config.cfg import ConfigOpts

from climate.clock import Clock
from climate.core.errors import Conflict, InvalidInput, NotFound
from climate.core.lease.model import (
    CREATE,
    MANUAL,
    NOTHING,
    Granted,
    Inventory,
    Lease,
    Reservation,
    Resource,
)
from climate.core.lease.on_start import creates
from climate.core.matching import expression
from climate.core.matching.query import Compare, Operand, both
from climate.core.matching.requirement import Requirement
from climate.plugins.base import (
    DELETE,
    KEEP,
    DiscoveredResource,
    Drift,
    ExpectedState,
    Requester,
    ResourcePlugin,
    Turn,
)
from climate.plugins.loader import load_cloud
from climate.plugins.request_fields import (
    DefaultingSchema,
    Expression,
    RequestSchema,
    WholeNumber,
    is_open,
    match_field,
    titled,
)
from climate.plugins.volumes import lifecycle
from climate.plugins.volumes.audit import find_drifts
from climate.plugins.volumes.cloud import (
    NOTHING_MORE,
    Quota,
    ReservedType,
    VolumeCloud,
    VolumeType,
    reserved_type_name,
)
from climate.plugins.volumes.default_types import restore_default, set_default

# Limits one request: each volume requires one or two calls to the cloud at the start.
MAX_VOLUMES = 1_000
_MOST = 2**31 - 1
# The resource classes that reservations share: GiB, and the number of volumes.
GIGABYTES, VOLUMES = "DISK_GB", "VOLUMES"
# The resource class that an operator's property declares.
_DECLARED = {"gigabytes": GIGABYTES, "volumes": VOLUMES}
_SNAPSHOT = "snapshot"


def _known_end(value: str) -> None:
    if value == _SNAPSHOT:
        raise ValidationError(
            "snapshot is not possible: copying volumes to images has no time limit, and the next"
            " lease needs their capacity. Use keep to keep the volumes themselves, or upload them"
            " to images or back them up before the end"
        )
    validate.OneOf([DELETE, KEEP])(value)


class VolumeSchema(DefaultingSchema):
    """The parameters of a reservation of volumes; ``look_up`` sets ``volume_type_id``."""

    volume_type = fields.String(
        required=True,
        validate=validate.Length(1, 255),
        metadata=titled("Volume type", "Name or id of the type."),
    )
    volume_type_id = fields.String(
        load_default=None, allow_none=True, metadata=titled("Id of the type", readOnly=True)
    )
    amount = WholeNumber(
        load_default=1, validate=validate.Range(1, MAX_VOLUMES), metadata=titled("Volumes")
    )
    size = WholeNumber(
        required=True,
        validate=validate.Range(1, _MOST),
        metadata=titled("Size of a volume, GiB"),
    )
    resource_properties = Expression(
        load_default="",
        allow_none=True,
        metadata=titled("Properties", "Property expression that the volume type must match."),
    )
    on_start = fields.String(
        load_default=CREATE,
        allow_none=True,
        validate=validate.OneOf([CREATE, NOTHING, MANUAL]),
        metadata=titled(
            "At the start",
            "nothing: you create the volumes yourself; manual: climate creates them when you start"
            " the reservation.",
        ),
    )
    on_end = fields.String(
        load_default=DELETE,
        allow_none=True,
        validate=_known_end,
        metadata=titled(
            "At the end",
            "keep: your project keeps the volumes after the lease.",
            enum=[DELETE, KEEP, None],
        ),
    )
    match = match_field(
        "targeted: volumes of the reserved type use the reservation; open: also volumes of your"
        " project whose users name no type. With open, on_start is nothing."
    )

    @pre_load
    def _default_of_open(self, data: Any, **_kwargs: Any) -> Any:  # noqa: ANN401
        """Let the project create the volumes of an open reservation, unless the user chooses."""
        if isinstance(data, Mapping) and is_open(data) and data.get("on_start") is None:
            return {**data, "on_start": NOTHING}
        return data

    @validates_schema
    def _volumes_of_the_project(self, data: dict[str, Any], **_kwargs: Any) -> None:
        if is_open(data) and creates(data):
            raise ValidationError(
                f"Must be {NOTHING} with match: open: volumes that climate creates would use the"
                " whole reservation, and Cinder would reject those that name no type",
                "on_start",
            )


class VolumePlugin(ResourcePlugin):
    """Reserves capacity for volumes of a volume type."""

    resource_type: ClassVar[str] = "virtual:volume"
    title: ClassVar[str] = "Volumes"
    description: ClassVar[str] = "Capacity for volumes of a volume type."
    schema: ClassVar[type[RequestSchema]] = VolumeSchema
    unit: ClassVar[Mapping[str, Any]] = {"amount": 1, "size": 1}
    resizes: ClassVar[bool] = False
    fixed: ClassVar[frozenset[str]] = frozenset({"match", "volume_type", "volume_type_id"})
    counts_leftovers: ClassVar[bool] = True
    native_properties: frozenset[str] = frozenset({"name", "volume_type_id", "volume_backend_name"})
    capacity_properties: frozenset[str] = frozenset(_DECLARED)

    def __init__(self, conf: ConfigOpts, turn: Turn, clock: Clock) -> None:
        self.cloud: VolumeCloud = load_cloud("virtual:volume", conf, turn=turn, clock=clock)
        self._turn = turn

    def look_up(self, params: Mapping[str, Any], _requester: Requester) -> Mapping[str, Any]:
        volume_type = self._type(params["volume_type"])
        if volume_type is None:
            raise InvalidInput(f"Volume type {params['volume_type']} could not be found")
        if is_open(params) and not self.cloud.has_default_types:
            raise InvalidInput(
                "match: open is not possible in this cloud: it requires default volume types"
                " (Cinder's API 3.62). Use match: targeted, and create volumes of the reserved type"
            )
        return {**params, "volume_type_id": volume_type.id}

    def acts_as_user(self, params: Mapping[str, Any]) -> bool:
        return self.cloud.needs_trust and creates(params)

    def requirement(self, params: Mapping[str, Any]) -> Requirement:
        id_ = params["volume_type_id"]
        if not id_:
            raise InvalidInput(f"Volume type {params['volume_type']} was not looked up")
        has_id = Compare("==", "volume_type_id", Operand(id_), "text")
        query = both(has_id, expression.parse(params["resource_properties"]))
        amounts = {GIGABYTES: params["size"], VOLUMES: 1}
        count = params["amount"]
        return Requirement(self.resource_type, count, count, query, amounts, noun="volume types")

    def preview_details(self, reservation_id: str) -> Mapping[str, Any]:
        return {"reserved_type": reserved_type_name(reservation_id)}

    def start(
        self, lease: Lease, reservation: Reservation, resources: Sequence[Granted]
    ) -> Mapping[str, Any]:
        """Create the reserved volume type with its quota, and give the project access to it.

        If the reservation is open, make the type the project's default type. Unless ``on_start`` is
        ``nothing``, also create the volumes. Raises VolumeCreationFailed if the cloud could not
        create a volume.
        """
        details = self.preview_details(reservation.id)
        reserved_type, params = self._reserved_type(reservation), reservation.params
        if reserved_type is None:
            working = [resource for resource in resources if resource.reservable]
            if not working:
                return details
            reserved_type = self.cloud.create_reserved_type(reservation.id, working[0].external_id)
        quota = self._quota(reservation, resources)
        self.cloud.set_quota(reserved_type, lease.project_id, quota)
        self.cloud.open_reserved_type(reserved_type, lease.project_id)
        if is_open(params):
            set_default(self.cloud, self._turn, reserved_type, lease.project_id)
        if not creates(params):
            return details
        volumes = lifecycle.create_volumes(
            self.cloud, lease, reserved_type, quota.volumes, params["size"]
        )
        return {**details, "volumes": volumes}

    def _quota(self, reservation: Reservation, resources: Sequence[Granted]) -> Quota:
        needs, size = self.requirement(reservation.params), reservation.params["size"]
        count = sum(needs.units(resource.amounts) for resource in resources)
        return Quota(count, count * size)

    def end(self, lease: Lease, reservation: Reservation, _resources: Sequence[Granted]) -> None:
        reserved_type = self._reserved_type(reservation)
        if reserved_type is None:
            return
        if is_open(reservation.params):
            restore_default(self.cloud, self._turn, reserved_type, lease.project_id)
        self.cloud.set_quota(reserved_type, lease.project_id, NOTHING_MORE)
        self.cloud.close_reserved_type(reserved_type)
        lifecycle.drain_volumes(
            self.cloud, reserved_type, keep=reservation.params["on_end"] == KEEP
        )
        self.cloud.delete_reserved_type(reserved_type)

    def _reserved_type(self, reservation: Reservation) -> ReservedType | None:
        present = self.cloud.reserved_types()
        return next((each for each in present if each.reservation_id == reservation.id), None)

    def _type(self, name: str) -> VolumeType | None:
        """Return the volume type with this id, otherwise the one with this name, otherwise None."""
        types = self.cloud.types()
        by_name = next((each for each in types if each.name == name), None)
        return next((each for each in types if each.id == name), by_name)

    def find(
        self, *, name: str | None = None, external_number: str | None = None
    ) -> DiscoveredResource:
        volume_type = self._type(name or external_number or "")
        if volume_type is None:
            raise NotFound(f"Volume type {name or external_number} could not be found")
        if reason := self.cloud.refusal(volume_type):
            raise Conflict(f"Volume type {volume_type.name} cannot be reserved: {reason}")
        return self._resource(volume_type)

    def inventory(self) -> Iterable[DiscoveredResource]:
        types = self.cloud.types()
        return (self._resource(each) for each in types if not self.cloud.refusal(each))

    def _resource(self, volume_type: VolumeType) -> DiscoveredResource:
        gigabytes = self.cloud.capacity(volume_type)
        specs = {
            name: text for name, text in volume_type.extra_specs.items() if name not in _DECLARED
        }
        return DiscoveredResource(
            external_id=volume_type.id,
            properties={**specs, "name": volume_type.name, "volume_type_id": volume_type.id},
            inventories={GIGABYTES: gigabytes} if gigabytes else {},
        )

    def declared(
        self, resource: DiscoveredResource, properties: Mapping[str, str]
    ) -> DiscoveredResource:
        """Return the volume type with the capacity that the operator's properties declare.

        Amounts that the operator does not declare are those of the cloud. If neither the operator
        nor the cloud limits the number of volumes, the limit is the number of GiB. Raises
        InvalidInput if neither of them states the GiB.
        """
        declared = {
            class_: Inventory(_number(name, properties[name]))
            for name, class_ in _DECLARED.items()
            if name in properties
        }
        inventories = {**resource.inventories, **declared}
        if GIGABYTES not in inventories:
            raise InvalidInput(
                f"The capacity of volume type {resource.properties['name']} is unknown to Cinder:"
                ' set it with the property "gigabytes"'
            )
        inventories.setdefault(VOLUMES, Inventory(inventories[GIGABYTES].total))
        return replace(resource, inventories=inventories)

    def refresh(self, registered: Sequence[Resource]) -> Iterable[DiscoveredResource]:
        """Yield the present state of the registered volume types that exist.

        Two kinds of volumes reduce the capacity of a type: volumes of the type itself, such as
        those that users kept after their lease, and remaining volumes of ended reservations. If the
        capacity is unknown at present, the stored capacity stays.
        """
        if not registered:
            return
        types = {each.id: each for each in self.cloud.types()}
        over = [each for each in self.cloud.reserved_types() if each.is_over]
        for resource in registered:
            if resource.external_id not in types:
                continue
            volume_type = types[resource.external_id]
            usable = self.cloud.refusal(volume_type) is None
            current = replace(self._resource(volume_type), usable=usable)
            try:
                current = self.declared(current, resource.extra_properties)
            except InvalidInput:
                yield replace(current, complete=False)
                continue
            yield replace(current, inventories=self._without_leftovers(current, over))

    def _without_leftovers(
        self, resource: DiscoveredResource, over: Sequence[ReservedType]
    ) -> Mapping[str, Inventory]:
        base_id = resource.external_id
        ids = [base_id, *(each.id for each in over if each.base_id == base_id)]
        volumes = [volume for id_ in ids for volume in self.cloud.volumes(id_)]
        used = {GIGABYTES: sum(volume.size for volume in volumes), VOLUMES: len(volumes)}
        return {
            name: replace(inventory, reserved=used[name])
            for name, inventory in resource.inventories.items()
        }

    def audit(self, expected: Callable[[], ExpectedState]) -> Iterable[Drift]:
        return find_drifts(
            self.cloud,
            expected,
            lambda held: self._quota(held.reservation, held.resources),
            partial(restore_default, self.cloud, self._turn),
        )


def _number(name: str, text: str) -> int:
    """Return the number in the property ``name``, which an operator has set to ``text``.

    Raises InvalidInput if the text is not a whole number from 1 to ``_MOST``.
    """
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(_MOST))
    if not (is_number and 1 <= int(text) <= _MOST):
        raise InvalidInput(f"{name} must be a whole number from 1 to {_MOST}, not {text!r}")
    return int(text)
