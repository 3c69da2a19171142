"""What v2 takes and gives. The same schemas check requests, make answers and are documented."""

from functools import cache
from typing import Any

from marshmallow import (
    INCLUDE,
    RAISE,
    Schema,
    ValidationError,
    fields,
    post_dump,
    validate,
    validates_schema,
)

from climate.api.v1.schemas import check_event_kind
from climate.api.v2.http.fields import ASAP, NOW, Moment, Strict
from climate.core.lease.lifecycle import EventStatus, LeaseStatus, ReservationStatus
from climate.core.lease.model import NOT_SHOWN
from climate.core.start import StartWhen

MOST = 100
_NAME = validate.Length(1, 80)
_ID = validate.Length(1, 36)
_PARAMS = "What is asked for; what there is to be asked depends on the type."
_START_WHEN = "ready: not before its hosts are ready, if they are got ready."


def says(text: str) -> dict[str, str]:
    """Return the metadata of a field that is described so."""
    return {"description": text}


def may_be_left_out(schema: Schema) -> set[str]:
    """Return what a plugin's schema asks for although it may be null: v2 puts the null there."""
    return {name for name, one in schema.fields.items() if one.required and one.allow_none}


class EventRequest(Strict):
    """An event of the user's own."""

    type = fields.String(required=True, validate=check_event_kind)
    at = Moment(required=True)


class ReservationRequest(Strict):
    """Resources of one type; what ``params`` there are depends on it."""

    resource_type = fields.String(required=True, validate=validate.Length(1, 64))
    params = fields.Dict(keys=fields.String(), load_default=dict, metadata=says(_PARAMS))


class LeaseRequest(Strict):
    """A lease to be made."""

    name = fields.String(required=True, validate=_NAME)
    start = Moment(required=True, words=(NOW, ASAP))
    end = Moment(metadata=says("When it ends, or how long it lasts: one of both."))
    duration = fields.Integer(
        strict=True, validate=validate.Range(1, 366 * 86400), metadata=says("Seconds.")
    )
    end_by = Moment(metadata=says("With the start asap: when it must have ended."))
    before_end = Moment()
    start_when = fields.Enum(
        StartWhen, by_value=True, load_default=StartWhen.SCHEDULED, metadata=says(_START_WHEN)
    )
    reservations = fields.List(
        fields.Nested(ReservationRequest), load_default=list, validate=validate.Length(max=MOST)
    )
    events = fields.List(
        fields.Nested(EventRequest), load_default=list, validate=validate.Length(max=MOST)
    )

    @validates_schema(skip_on_field_errors=False, pass_original=True)
    def _end(self, data: dict[str, Any], sent: Any, **_kwargs: Any) -> None:  # noqa: ANN401
        if not isinstance(sent, dict):
            return
        if not ("end" in sent or "duration" in sent):
            raise ValidationError(fields.Field.default_error_messages["required"], "end")
        if "end" in sent and "duration" in sent:
            raise ValidationError("Give the end or the duration, and not both.", "end")
        is_asap = data.get("start") == ASAP
        if is_asap and not ("duration" in data and "end_by" in data):
            raise ValidationError("This needs a duration and end_by.", "start")
        if is_asap and (data.get("events") or "before_end" in data):
            raise ValidationError("Nobody knows yet when that is: leave out its events.", "start")
        if "end_by" in data and "start" in data and not is_asap:
            raise ValidationError("This goes with the start asap.", "end_by")


class ReservationChange(Strict):
    """New parameters for a reservation of the lease; those that are not named stay."""

    id = fields.String(required=True, validate=_ID)
    params = fields.Dict(keys=fields.String(), required=True)


class LeaseChange(Strict):
    """What is to change; what is absent stays."""

    name = fields.String(validate=_NAME)
    start = Moment(words=(NOW,))
    end = Moment(words=(NOW,))
    before_end = Moment()
    start_when = fields.Enum(StartWhen, by_value=True, metadata=says(_START_WHEN))
    reservations = fields.List(
        fields.Nested(ReservationChange), load_default=list, validate=validate.Length(max=MOST)
    )
    add_reservations = fields.List(
        fields.Nested(ReservationRequest), load_default=list, validate=validate.Length(max=MOST)
    )
    remove_reservations = fields.List(
        fields.String(validate=_ID), load_default=list, validate=validate.Length(max=MOST)
    )

    @validates_schema
    def _named_once(self, data: dict[str, Any], **_kwargs: Any) -> None:
        changed = [("reservations", one["id"]) for one in data["reservations"]]
        named = changed + [("remove_reservations", id_) for id_ in data["remove_reservations"]]
        seen: set[str] = set()
        for key, id_ in named:
            if id_ in seen:
                raise ValidationError(f"Reservation {id_} is named more than once.", key)
            seen.add(id_)


class Event(Schema):
    """Something due in the life of a lease."""

    id = fields.String()
    type = fields.String(attribute="kind")
    at = Moment(attribute="due_at")
    status = fields.Enum(EventStatus, by_value=True)


class Reservation(Schema):
    """What a lease has of one type: ``params`` were asked for, ``details`` came of it."""

    id = fields.String()
    resource_type = fields.String()
    status = fields.Enum(ReservationStatus, by_value=True)
    params = fields.Dict(keys=fields.String(), attribute="shown_params")
    details = fields.Dict(keys=fields.String())
    missing_resources = fields.Boolean()
    resources_changed = fields.Boolean()
    created_at = Moment()
    updated_at = Moment(allow_none=True)

    @post_dump
    def _told(self, data: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
        told = {name: value for name, value in data["details"].items() if name not in NOT_SHOWN}
        return {**data, "details": told}


class Lease(Schema):
    """A lease."""

    id = fields.String()
    name = fields.String()
    user_id = fields.String()
    project_id = fields.String()
    start = Moment(attribute="window.start")
    end = Moment(attribute="window.end")
    start_when = fields.Enum(StartWhen, by_value=True, attribute="start.when")
    ready_at = Moment(
        allow_none=True,
        attribute="start.ready_at",
        metadata=says("When the last host that was to be got ready was."),
    )
    start_delayed_at = Moment(
        allow_none=True,
        attribute="start.delayed_at",
        metadata=says("When its start began to wait for hosts; null: it never did."),
    )
    started_at = Moment(
        allow_none=True, attribute="start.started_at", metadata=says("When all was handed over.")
    )
    status = fields.Enum(LeaseStatus, by_value=True)
    degraded = fields.Boolean(
        attribute="ails",
        metadata=says("Whether some of its resources fail, or acting as its user would."),
    )
    trust_lost = fields.String(
        allow_none=True,
        metadata=says("Why acting as its user fails at present, and what helps; else null."),
    )
    reservations = fields.List(fields.Nested(Reservation))
    events = fields.List(fields.Nested(Event))
    created_at = Moment()
    updated_at = Moment(allow_none=True)


class Resource(Schema):
    """Something that can be reserved."""

    id = fields.String()
    resource_type = fields.String(attribute="type")
    name = fields.String(attribute="external_id")
    reservable = fields.Boolean(metadata=says("Whether it works and can be booked."))
    properties = fields.Dict(keys=fields.String(), values=fields.String())
    created_at = Moment()
    updated_at = Moment(allow_none=True)


def next_page() -> fields.String:
    """Return the link to the next page."""
    return fields.String(
        allow_none=True, metadata=says("Where the next page is; null on the last.")
    )


class LeasePage(Schema):
    """A page of leases."""

    leases = fields.List(fields.Nested(Lease))
    next = next_page()


class ResourcePage(Schema):
    """A page of resources."""

    resources = fields.List(fields.Nested(Resource))
    next = next_page()


class BadValue(Schema):
    """One bad value: where it is in the body (a JSON pointer) or which parameter of the query."""

    pointer = fields.String()
    parameter = fields.String()
    header = fields.String()
    detail = fields.String(required=True)


class Blocker(Schema):
    """A booking in the way; of own ones the lease is told."""

    start = Moment()
    end = Moment()
    lease_id = fields.String()
    lease_name = fields.String()


class Alternative(Schema):
    """A lease like the one that was refused, which would be admitted now."""

    differs = fields.String(validate=validate.OneOf(["later", "shorter", "fewer", "other"]))
    start = Moment()
    end = Moment()
    amount = fields.Integer()


class Problem(Schema):
    """A refusal (RFC 9457). What follows the errors is of some codes, and there may be more."""

    class Meta:
        """Codes have members of their own."""

        unknown = INCLUDE

    type = fields.String(required=True)
    title = fields.String(required=True)
    status = fields.Integer(required=True)
    detail = fields.String(required=True)
    code = fields.String(required=True)
    errors = fields.List(fields.Nested(BadValue))
    etag = fields.String(metadata=says("What the lease is now (precondition_failed)."))
    reservation = fields.Integer(
        allow_none=True,
        metadata=says(
            "Which was short, from 0; null: each would fit alone (not_enough_resources)."
        ),
    )
    oldest = fields.Integer(metadata=says("The first number that is kept (notifications_removed)."))
    asked = fields.Float(metadata=says("What was asked for: units, or what there is a limit of."))
    matching = fields.Integer(metadata=says("Resources that match and are large enough."))
    free = fields.Integer(metadata=says("Units that are free all through the window."))
    missing = fields.Integer(allow_none=True, metadata=says("Units that are missing."))
    blocked_by = fields.List(fields.Nested(Blocker))
    alternatives = fields.List(fields.Nested(Alternative))


# Making a schema takes longer than using it, and any number of threads may use one.
LEASE_REQUEST, LEASE_CHANGE = LeaseRequest(), LeaseChange()
LEASE, LEASE_PAGE = Lease(), LeasePage()
RESOURCE, RESOURCE_PAGE = Resource(), ResourcePage()


@cache
def params(schema: type[Schema]) -> Schema:
    """Return the schema of what a resource type can be asked, and nothing else."""
    return schema(unknown=RAISE)
