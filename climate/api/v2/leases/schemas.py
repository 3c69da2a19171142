"""What v2 takes and gives. The same schemas check requests, make answers and are documented."""

from functools import cache
from typing import Any

from marshmallow import (
    RAISE,
    Schema,
    ValidationError,
    fields,
    post_dump,
    validate,
    validates_schema,
)

from climate.api.v1.schemas import check_event_kind
from climate.api.v2.http.fields import ASAP, NOW, Moment, Strict, flag
from climate.api.v2.http.queries import PageQuery, sorted_by
from climate.api.v2.http.schemas import next_page, says
from climate.core.lease.lifecycle import EventStatus, LeaseStatus, ReservationStatus
from climate.core.lease.model import NOT_SHOWN, StartWhen
from climate.core.page import LEASE_SORTS

MOST = 100
_NAME = validate.Length(1, 80)
_ID = validate.Length(1, 36)
_PARAMS = "What is asked for; what there is to be asked depends on the type."
_START_WHEN = "ready: not before its hosts are ready, if they are got ready."


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


class LeasePage(Schema):
    """A page of leases."""

    leases = fields.List(fields.Nested(Lease))
    next = next_page()


class LeaseQuery(PageQuery):
    """Which leases, in which order."""

    sort = sorted_by(LEASE_SORTS, "-start")
    status = fields.List(
        fields.String(validate=validate.OneOf([status.value for status in LeaseStatus])),
        load_default=list,
        validate=validate.Length(max=len(LeaseStatus)),
    )
    name = fields.String()
    resource_type = fields.String()
    starts_before = Moment()
    starts_after = Moment()
    ends_before = Moment()
    ends_after = Moment()
    all_projects = flag(
        load_default=False,
        metadata=says("Of all projects, to those with the policy climate:leases:get_all."),
    )


# Making a schema takes longer than using it, and any number of threads may use one.
LEASE_REQUEST, LEASE_CHANGE = LeaseRequest(), LeaseChange()
LEASE, LEASE_PAGE, LEASE_QUERY = Lease(), LeasePage(), LeaseQuery()


@cache
def params(schema: type[Schema]) -> Schema:
    """Return the schema of what a resource type can be asked, and nothing else."""
    return schema(unknown=RAISE)
