"""Schemas of leases, their reservations and their events."""

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

from climate.api.v1.schemas import LIST_LENGTH, check_event_kind
from climate.api.v2.http.fields import ASAP, NOW, CodedMessage, Moment, Strict, flag
from climate.api.v2.http.schemas import PageQuery, described, page_of, sorted_by
from climate.core.errors import MissingParameter
from climate.core.lease.lifecycle import EventStatus, LeaseStatus, ReservationStatus, RunState
from climate.core.lease.model import NOT_SHOWN, StartWhen
from climate.core.lease.wait_list import MAX_PRIORITY, HeldBack
from climate.core.page import LEASE_SORTS
from climate.core.window import MAX_SPAN
from climate.manager.leases.reservation_changes import MAX_RESERVATIONS

_NAME = validate.Length(1, 80)
_ID = validate.Length(1, 36)
_PARAMS = "The requested resources; the parameters depend on the resource type."
_START_WHEN = "scheduled: at the start; ready: as soon as provisioners have prepared all hosts."


_NO_END = CodedMessage("Send an end or a duration in seconds.", MissingParameter.code)
_END_BY = "This goes with the start asap."
_TWO_ENDS = "Send the end or the duration, not both."


_LENGTH = f"A lease lasts from 1 second to {{max}} seconds ({MAX_SPAN.days} days)."


def _duration() -> fields.Integer:
    return fields.Integer(
        strict=True,
        validate=validate.Range(1, int(MAX_SPAN.total_seconds()), error=_LENGTH),
        metadata=described("Seconds from the start to the end, instead of end."),
    )


class EventRequest(Strict):
    """A custom event of a lease: at its time, climate publishes a notification."""

    type = fields.String(required=True, validate=check_event_kind)
    at = Moment(required=True)


class ReservationRequest(Strict):
    """A reservation in a request; ``resource_type`` determines which keys ``params`` may have."""

    resource_type = fields.String(required=True, validate=validate.Length(1, 64))
    params = fields.Dict(keys=fields.String(), load_default=dict, metadata=described(_PARAMS))


class WaitRequest(Strict):
    """How long a lease waits for capacity, and how urgently; ``{}`` is enough to wait."""

    until = Moment(
        metadata=described(
            "If the lease has no booking by then, climate deletes it. Default: as late as end_by"
            " permits."
        )
    )
    priority = fields.Integer(
        strict=True,
        validate=validate.Range(0, MAX_PRIORITY),
        metadata=described(
            "0 to 9; default 0. Leases with a higher priority come earlier in the wait list."
        ),
    )


class Waiting(Schema):
    """The place of a lease in the wait list."""

    position = fields.Integer(metadata=described("1 is the first of this resource type."))
    priority = fields.Integer(attribute="wait.priority")
    until = Moment(attribute="wait.until")
    promised_start = Moment(
        allow_none=True,
        attribute="wait.promised_start",
        metadata=described(
            "The start of its booking, else null. A firm promise never becomes later."
        ),
    )
    expected_start = Moment(
        allow_none=True,
        metadata=described(
            "The earliest start beside the present bookings; leases before it in the list may come"
            " first. Only in the answer about a single lease."
        ),
    )
    held_back = fields.Enum(
        HeldBack,
        by_value=True,
        allow_none=True,
        attribute="wait.held_back",
        metadata=described(
            "limit: a limit of the project or user; no_window: it fits nowhere before end_by;"
            " error: climate could not decide, and its log says why. climate tries again."
        ),
    )


class LeaseRequest(Strict):
    """The body of a request to create a lease."""

    name = fields.String(required=True, validate=_NAME)
    start = Moment(required=True, words=(NOW, ASAP))
    end = Moment(metadata=described("Send either end or duration."))
    duration = _duration()
    end_by = Moment(metadata=described("Latest end; only with the start asap."))
    wait = fields.Nested(
        WaitRequest,
        metadata=described(
            "If too few resources are free, wait for them; only with the start asap. Then end_by"
            " may be absent."
        ),
    )
    before_end = Moment()
    start_when = fields.Enum(
        StartWhen, by_value=True, load_default=StartWhen.SCHEDULED, metadata=described(_START_WHEN)
    )
    reservations = fields.List(
        fields.Nested(ReservationRequest),
        required=True,
        validate=validate.Length(
            1, MAX_RESERVATIONS, error="A lease has {min} to {max} reservations."
        ),
    )
    events = fields.List(fields.Nested(EventRequest), load_default=list, validate=LIST_LENGTH)

    @validates_schema(skip_on_field_errors=False, pass_original=True)
    def _end(self, data: dict[str, Any], sent: Any, **_kwargs: Any) -> None:  # noqa: ANN401
        if not isinstance(sent, dict):
            return
        if not ("end" in sent or "duration" in sent):
            raise ValidationError(_NO_END, "end")
        if "end" in sent and "duration" in sent:
            raise ValidationError(_TWO_ENDS, "end")
        is_asap = data.get("start") == ASAP
        if "wait" in sent and not is_asap:
            raise ValidationError(_END_BY, "wait")
        if is_asap and not ("duration" in data and ("end_by" in data or "wait" in data)):
            raise ValidationError("This needs a duration and end_by.", "start")
        if is_asap and (data.get("events") or "before_end" in data):
            raise ValidationError(
                "With asap the start is not known yet: leave out events and before_end.", "start"
            )
        if "end_by" in data and "start" in data and not is_asap:
            raise ValidationError(_END_BY, "end_by")


class ReservationChange(Strict):
    """New parameters of the reservation ``id``. Parameters that are absent keep their values."""

    id = fields.String(required=True, validate=_ID)
    params = fields.Dict(keys=fields.String(), load_default=dict)
    give_back = fields.List(
        fields.String(validate=validate.Length(1, 255)),
        load_default=list,
        validate=LIST_LENGTH,
        metadata=described("Names or ids of hosts that a running reservation gives back."),
    )
    add_hosts = fields.List(
        fields.String(validate=validate.Length(1, 255)),
        load_default=list,
        validate=LIST_LENGTH,
        metadata=described("Names or ids of hosts that join the reservation, exactly these."),
    )

    @validates_schema(pass_original=True)
    def _which(self, _data: dict[str, Any], original: Any, **_kwargs: Any) -> None:  # noqa: ANN401
        if not {"params", "give_back", "add_hosts"} & original.keys():
            raise ValidationError("Required, unless give_back or add_hosts is given", "params")


class LeaseChange(Strict):
    """The body of a request to change a lease. A field that the request omits keeps its value."""

    name = fields.String(validate=_NAME)
    start = Moment(words=(NOW, ASAP))
    end = Moment(words=(NOW,))
    duration = _duration()
    end_by = Moment(
        metadata=described(
            "Latest end; only with the start asap. Default: the lease starts no later than before."
        )
    )
    before_end = Moment()
    start_when = fields.Enum(StartWhen, by_value=True, metadata=described(_START_WHEN))
    wait = fields.Nested(
        WaitRequest, metadata=described("Of a lease in the wait list. Send no other field with it.")
    )
    reservations = fields.List(
        fields.Nested(ReservationChange), load_default=list, validate=LIST_LENGTH
    )
    add_reservations = fields.List(
        fields.Nested(ReservationRequest),
        load_default=list,
        validate=LIST_LENGTH,
    )
    remove_reservations = fields.List(
        fields.String(validate=_ID), load_default=list, validate=LIST_LENGTH
    )

    @validates_schema
    def _check_end(self, data: dict[str, Any], **_kwargs: Any) -> None:
        if "end" in data and "duration" in data:
            raise ValidationError(_TWO_ENDS, "end")
        is_asap = data.get("start") == ASAP
        if is_asap and ("end" in data or "before_end" in data):
            raise ValidationError(
                "With asap the start is not known yet: send the duration instead of end, and leave"
                " out before_end.",
                "start",
            )
        if "end_by" in data and not is_asap:
            raise ValidationError(_END_BY, "end_by")
        if is_asap and any(change["add_hosts"] for change in data["reservations"]):
            raise ValidationError(
                "The search for a start does not consider the hosts in add_hosts: send them in"
                " another request.",
                "reservations",
            )

    @validates_schema(pass_original=True)
    def _check_wait(self, data: dict[str, Any], sent: Any, **_kwargs: Any) -> None:  # noqa: ANN401
        if "wait" in data and len(sent) > 1:
            raise ValidationError("Send no other field with wait.", "wait")

    @validates_schema
    def _check_unique(self, data: dict[str, Any], **_kwargs: Any) -> None:
        changed = [("reservations", change["id"]) for change in data["reservations"]]
        removed = [("remove_reservations", id_) for id_ in data["remove_reservations"]]
        seen: set[str] = set()
        for key, id_ in changed + removed:
            if id_ in seen:
                raise ValidationError(f"Reservation {id_} is named more than once.", key)
            seen.add(id_)


class Event(Schema):
    """A step of a lease that happens at a certain time, such as its start."""

    id = fields.String()
    type = fields.String(attribute="kind")
    at = Moment(attribute="due_at")
    status = fields.Enum(EventStatus, by_value=True)


class Reservation(Schema):
    """A reservation of a lease.

    ``params`` contains the requested parameters. ``details`` contains what users need to use the
    resources, such as the id of a flavor.
    """

    id = fields.String()
    resource_type = fields.String()
    status = fields.Enum(ReservationStatus, by_value=True)
    run_state = fields.Enum(
        RunState,
        by_value=True,
        allow_none=True,
        metadata=described("With on_start manual: what users started or stopped. Else null."),
    )
    params = fields.Dict(keys=fields.String(), attribute="shown_params")
    details = fields.Dict(keys=fields.String())
    missing_resources = fields.Boolean()
    resources_changed = fields.Boolean()
    created_at = Moment()
    updated_at = Moment(allow_none=True)

    @post_dump
    def _hide_internal_details(self, data: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
        public = {name: value for name, value in data["details"].items() if name not in NOT_SHOWN}
        return {**data, "details": public}


class Lease(Schema):
    """A lease, as the answers of v2 contain it."""

    id = fields.String()
    name = fields.String()
    user_id = fields.String()
    project_id = fields.String()
    start = Moment(attribute="window.start")
    end = Moment(attribute="window.end")
    booked_from = Moment(
        allow_none=True,
        metadata=described(
            "From when on the capacity is booked: the start, or earlier if climate creates servers,"
            " volumes, networks or stacks that must be ready at the start. Null while it waits."
        ),
    )
    start_when = fields.Enum(StartWhen, by_value=True, attribute="start.when")
    ready_at = Moment(
        allow_none=True,
        attribute="start.ready_at",
        metadata=described(
            "When the last of its prepared hosts, or of what climate creates, became ready."
        ),
    )
    start_delayed_at = Moment(
        allow_none=True,
        attribute="start.delayed_at",
        metadata=described("When the start was first delayed to wait for hosts; null: it was not."),
    )
    started_at = Moment(
        allow_none=True,
        attribute="start.started_at",
        metadata=described("When climate had handed over all resources."),
    )
    status = fields.Enum(LeaseStatus, by_value=True)
    degraded = fields.Boolean(
        attribute="is_degraded",
        metadata=described("True if resources of the lease fail, or if trust_lost is set."),
    )
    trust_lost = fields.String(
        allow_none=True,
        metadata=described("Why climate cannot act as the user now, and what to do; else null."),
    )
    reservations = fields.List(fields.Nested(Reservation))
    events = fields.List(fields.Nested(Event))
    waiting = fields.Nested(
        Waiting,
        allow_none=True,
        metadata=described("Its place in the wait list; null if it is not there."),
    )
    created_at = Moment()
    updated_at = Moment(allow_none=True)


LeasePage = page_of("leases", Lease)


class LeaseQuery(PageQuery):
    """The query parameters of the list of leases: filter, order and page."""

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
        metadata=described("Leases of all projects. Requires the policy climate:leases:get_all."),
    )


# Created once, because creating a schema takes longer than using it. They are thread-safe.
LEASE_REQUEST, LEASE_CHANGE = LeaseRequest(), LeaseChange()
LEASE_QUERY = LeaseQuery()


@cache
def params(schema: type[Schema]) -> Schema:
    """Return an instance of ``schema`` that rejects unknown keys.

    ``schema`` is a plug-in's schema of reservation parameters.
    """
    return schema(unknown=RAISE)
