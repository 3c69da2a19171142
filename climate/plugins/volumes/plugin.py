"""``virtual:volume``: room for volumes of a volume type, in GiB and in number.

An operator registers a private volume type that no project can use by itself. A reservation has a
number of volumes of a size in GiB of one type, as a reserved volume type
(``climate.plugins.volumes.cloud``) in which its project creates them, or finds them created.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from marshmallow import ValidationError, fields, post_load, validate
from oslo_config.cfg import ConfigOpts

from climate.clock import Clock
from climate.core.errors import Conflict, InvalidInput, NotFound
from climate.core.lease.model import Granted, Inventory, Lease, Reservation, Resource
from climate.core.matching import expression
from climate.core.matching.query import Compare, Operand, both
from climate.core.matching.requirement import Requirement
from climate.plugins.base import (
    Asker,
    Difference,
    Expected,
    Found,
    RequestSchema,
    ResourcePlugin,
    Turn,
)
from climate.plugins.hosts.plugin import Expression, WholeNumber
from climate.plugins.loader import load_cloud
from climate.plugins.networking.base import CREATE, DELETE, KEEP, NOTHING
from climate.plugins.volumes import fill as filling
from climate.plugins.volumes.audit import differences
from climate.plugins.volumes.cloud import (
    NOTHING_MORE,
    Quota,
    Room,
    VolumeCloud,
    VolumeType,
    room_name,
)

# Bounds one request: each is a call or two to the cloud when the lease starts.
MAX_VOLUMES = 1_000
_MOST = 2**31 - 1
# The resource classes of what is shared: GiB, and how many.
GIGABYTES, VOLUMES = "DISK_GB", "VOLUMES"
# What operators say of a type, by the property that they say it with.
_SAID = {"gigabytes": GIGABYTES, "volumes": VOLUMES}
_SNAPSHOT = "snapshot"


def _known_end(value: str) -> None:
    if value == _SNAPSHOT:
        raise ValidationError(
            "Volumes cannot be kept as images at the end: copying them takes as long as it takes,"
            " and the next lease's room with it. Use keep to have the volumes themselves, or"
            " upload them to images, or back them up, before the end"
        )
    validate.OneOf([DELETE, KEEP])(value)


class VolumeSchema(RequestSchema):
    """The part of a reservation request that is about volumes; the id is told by the cloud."""

    volume_type = fields.String(required=True, validate=validate.Length(1, 255))
    volume_type_id = fields.String(load_default=None, allow_none=True)
    amount = WholeNumber(load_default=1, validate=validate.Range(1, MAX_VOLUMES))
    size = WholeNumber(required=True, validate=validate.Range(1, _MOST))
    resource_properties = Expression(load_default="", allow_none=True)
    on_start = fields.String(
        load_default=CREATE, allow_none=True, validate=validate.OneOf([CREATE, NOTHING])
    )
    on_end = fields.String(load_default=DELETE, allow_none=True, validate=_known_end)

    @post_load
    def _defaults(self, data: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
        """Read null as the default."""
        return {
            **data,
            "resource_properties": data["resource_properties"] or "",
            "on_start": data["on_start"] or CREATE,
            "on_end": data["on_end"] or DELETE,
        }


class VolumePlugin(ResourcePlugin):
    """Room for volumes."""

    resource_type: ClassVar[str] = "virtual:volume"
    schema: ClassVar[type[RequestSchema]] = VolumeSchema
    unit: ClassVar[Mapping[str, Any]] = {"amount": 1, "size": 1}
    resizes: ClassVar[bool] = False
    fixed: ClassVar[frozenset[str]] = frozenset({"volume_type", "volume_type_id"})
    counts_leftovers: ClassVar[bool] = True
    native_properties: frozenset[str] = frozenset({"name", "volume_type_id", "volume_backend_name"})

    def __init__(self, conf: ConfigOpts, turn: Turn, clock: Clock) -> None:
        """Load the configured cloud driver."""
        self.cloud: VolumeCloud = load_cloud("virtual:volume", conf, turn=turn, clock=clock)

    def look_up(self, params: Mapping[str, Any], _asker: Asker) -> Mapping[str, Any]:
        """Return ``params`` with the id of the volume type; raises InvalidInput."""
        found = self._type(params["volume_type"])
        if found is None:
            raise InvalidInput(f"Volume type {params['volume_type']} could not be found")
        return {**params, "volume_type_id": found.id}

    def acts_as_user(self, params: Mapping[str, Any]) -> bool:
        """Tell whether volumes are to be made."""
        return self.cloud.needs_trust and params["on_start"] == CREATE

    def requirement(self, params: Mapping[str, Any]) -> Requirement:
        """So many volumes of one type, which others share; raises InvalidInput."""
        id_ = params["volume_type_id"]
        if not id_:
            raise InvalidInput(f"Volume type {params['volume_type']} was not looked up")
        named = Compare("==", "volume_type_id", Operand(id_), "text")
        query = both(named, expression.parse(params["resource_properties"]))
        amounts = {GIGABYTES: params["size"], VOLUMES: 1}
        count = params["amount"]
        return Requirement(self.resource_type, count, count, query, amounts, noun="volume types")

    def foretold(self, reservation_id: str) -> Mapping[str, Any]:
        """Tell the name of the volume type to be, though nobody can use it yet."""
        return {"reserved_type": room_name(reservation_id)}

    def start(
        self, lease: Lease, reservation: Reservation, resources: Sequence[Granted]
    ) -> Mapping[str, Any]:
        """Have the room open, and volumes in it unless it is only promised."""
        told = self.foretold(reservation.id)
        room, params = self._room(reservation), reservation.params
        if room is None:
            working = [one for one in resources if one.reservable]
            if not working:
                return told
            room = self.cloud.make_room(reservation.id, working[0].external_id)
        quota = self._quota(reservation, resources)
        self.cloud.set_quota(room, lease.project_id, quota)
        self.cloud.open_room(room, lease.project_id)
        if params["on_start"] == NOTHING:
            return told
        made = filling.fill(self.cloud, lease, room, quota.volumes, params["size"])
        return {**told, "volumes": made}

    def _quota(self, reservation: Reservation, resources: Sequence[Granted]) -> Quota:
        needs, size = self.requirement(reservation.params), reservation.params["size"]
        count = sum(needs.units(one.amounts) for one in resources)
        return Quota(count, count * size)

    def end(self, lease: Lease, reservation: Reservation, _resources: Sequence[Granted]) -> None:
        """Close the room, empty it, and delete it."""
        room = self._room(reservation)
        if room is None:
            return
        self.cloud.set_quota(room, lease.project_id, NOTHING_MORE)
        self.cloud.close_room(room)
        filling.empty(self.cloud, room, keep=reservation.params["on_end"] == KEEP)
        self.cloud.delete_room(room)

    def _room(self, reservation: Reservation) -> Room | None:
        there = self.cloud.rooms()
        return next((one for one in there if one.reservation_id == reservation.id), None)

    def _type(self, name: str) -> VolumeType | None:
        """Return the volume type with this id, or else with this name."""
        there = self.cloud.types()
        by_name = next((one for one in there if one.name == name), None)
        return next((one for one in there if one.id == name), by_name)

    def find(self, *, name: str | None = None, external_number: str | None = None) -> Found:
        """Return a volume type; raises Conflict if others can use it."""
        found = self._type(name or external_number or "")
        if found is None:
            raise NotFound(f"Volume type {name or external_number} could not be found")
        if why := self.cloud.refusal(found):
            raise Conflict(f"Volume type {found.name} cannot be reserved: {why}")
        return self._found(found)

    def inventory(self) -> Iterable[Found]:
        """Return the volume types that can be reserved."""
        return (self._found(one) for one in self.cloud.types() if not self.cloud.refusal(one))

    def _found(self, there: VolumeType) -> Found:
        gigabytes = self.cloud.capacity(there)
        specs = {name: text for name, text in there.extra_specs.items() if name not in _SAID}
        return Found(
            external_id=there.id,
            properties={**specs, "name": there.name, "volume_type_id": there.id},
            inventories={GIGABYTES: gigabytes} if gigabytes else {},
        )

    def declared(self, found: Found, properties: Mapping[str, str]) -> Found:
        """Return the type with what the operator says that it has; without that, as it is told.

        Of the volumes there are no more than GiB. Raises InvalidInput if nobody says how much.
        """
        said = {
            class_: Inventory(_number(name, properties[name]))
            for name, class_ in _SAID.items()
            if name in properties
        }
        inventories = {**found.inventories, **said}
        if GIGABYTES not in inventories:
            raise InvalidInput(
                f"Cinder does not tell how many GiB volume type {found.properties['name']} has:"
                ' say so with the property "gigabytes"'
            )
        inventories.setdefault(VOLUMES, Inventory(inventories[GIGABYTES].total))
        return replace(found, inventories=inventories)

    def look(self, registered: Sequence[Resource]) -> Iterable[Found]:
        """Return them as they are; of what nobody has reserved any more, what is there is taken.

        Volumes that were kept, and those that could not be deleted yet. While nobody says what a
        type has, it has what it had.
        """
        there = {one.id: one for one in self.cloud.types()} if registered else {}
        over = [room for room in self.cloud.rooms() if room.is_over] if registered else []
        for resource in registered:
            if resource.external_id not in there:
                continue
            volume_type = there[resource.external_id]
            is_open = self.cloud.refusal(volume_type) is not None
            found = replace(self._found(volume_type), usable=not is_open)
            try:
                found = self.declared(found, _own(resource))
            except InvalidInput:
                yield replace(found, complete=False)
                continue
            yield replace(found, inventories=self._less(found, over))

    def _less(self, found: Found, over: Sequence[Room]) -> Mapping[str, Inventory]:
        ids = [found.external_id, *(room.id for room in over if room.base_id == found.external_id)]
        left = [volume for id_ in ids for volume in self.cloud.volumes(id_)]
        taken = {GIGABYTES: sum(one.size for one in left), VOLUMES: len(left)}
        return {name: replace(one, reserved=taken[name]) for name, one in found.inventories.items()}

    def audit(self, expected: Callable[[], Expected]) -> Iterable[Difference]:
        """Compare rooms with what leases have."""
        return differences(
            self.cloud, expected, lambda one: self._quota(one.reservation, one.resources)
        )


def _own(resource: Resource) -> Mapping[str, str]:
    return {
        name: resource.properties[name] for name in resource.properties.keys() - resource.native
    }


def _number(name: str, text: str) -> int:
    """Return what an operator says; raises InvalidInput."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(_MOST))
    if not (is_number and 1 <= int(text) <= _MOST):
        raise InvalidInput(f"{name} must be a whole number from 1 to {_MOST}, not {text!r}")
    return int(text)
