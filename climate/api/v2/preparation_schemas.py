"""What v2 takes and gives about hosts that are got ready, and how ready leases are."""

from typing import Any

from marshmallow import Schema, ValidationError, fields, validate, validates_schema

from climate.api.v2.http.fields import Moment, Strict, flag
from climate.api.v2.http.queries import PageQuery, sorted_by, wait_seconds
from climate.api.v2.leases.schemas import says
from climate.core.page import PREPARATION_SORTS
from climate.core.provisioning.preparation import PreparationState
from climate.core.provisioning.readiness import Period, Readiness

_STATES = [one.value for one in PreparationState]
_REPORTED = [one.value for one in PreparationState if one is not PreparationState.OVER]
_MOST_PHASES = 32
_A_YEAR = 366 * 86400


class PreparationQuery(PageQuery):
    """Which preparations, in which order."""

    sort = sorted_by(PREPARATION_SORTS, "needed")
    state = fields.List(
        fields.String(validate=validate.OneOf(_STATES)),
        load_default=list,
        validate=validate.Length(max=len(_STATES)),
    )
    node = fields.String()
    lease = fields.String()
    hardware = fields.String()
    claimable = flag(
        load_default=False,
        metadata=says("Only what nobody has, or somebody who has not said so for too long."),
    )
    wait = wait_seconds()


class SummaryQuery(Strict):
    """Of which time, divided how."""

    since = Moment(required=True)
    until = Moment(required=True)
    period = fields.String(
        load_default=Period.ALL.value,
        validate=validate.OneOf([one.value for one in Period]),
    )


class Report(Strict):
    """What somebody who gets a host ready says. It may be said twice."""

    state = fields.String(
        required=True,
        validate=validate.OneOf(_REPORTED),
        metadata=says("accepted claims it, or keeps the claim; wanted hands it back."),
    )
    owner = fields.String(
        required=True,
        validate=validate.Length(1, 255),
        metadata=says("Who says it: a name that no other process has."),
    )
    claim_seconds = fields.Integer(
        strict=True,
        load_default=120,
        validate=validate.Range(3, 3600),
        metadata=says("How long the claim holds unless it is kept."),
    )
    seconds = fields.Dict(
        keys=fields.String(validate=validate.Length(1, 64)),
        values=fields.Float(allow_nan=False, validate=validate.Range(0, _A_YEAR)),
        load_default=dict,
        validate=validate.Length(max=_MOST_PHASES),
        metadata=says("How long each phase took."),
    )
    cold = fields.Boolean(
        load_default=False,
        metadata=says("Whether the host had no power: only then its time is learned from."),
    )
    reason = fields.String(load_default="", validate=validate.Length(max=2000))

    @validates_schema
    def _has_reason(self, data: dict[str, Any], **_kwargs: Any) -> None:
        if data["state"] == PreparationState.FAILED and not data["reason"].strip():
            raise ValidationError("Say why it failed.", "reason")


class HostChange(Strict):
    """Whether a host is booked for nobody."""

    set_aside = fields.String(
        required=True,
        allow_none=True,
        validate=validate.Length(1, 2000),
        metadata=says("Why; null: it may be booked again if it works."),
    )


class Preparation(Schema):
    """A host that is to be ready by ``needed_at``."""

    id = fields.String()
    state = fields.Enum(PreparationState, by_value=True)
    node = fields.String()
    hardware = fields.String(metadata=says("Its class: the property hardware, or the hypervisor."))
    resource_id = fields.String()
    lease_id = fields.String()
    reservation_id = fields.String()
    wanted_at = Moment()
    needed_at = Moment()
    lead = fields.Float(metadata=says("Seconds that were to be allowed for it."))
    owner = fields.String(allow_none=True)
    claimed_until = Moment(allow_none=True)
    attempt = fields.Integer()
    accepted_at = Moment(allow_none=True)
    ready_at = Moment(allow_none=True)
    over_at = Moment(allow_none=True)
    early = fields.Float(
        allow_none=True, metadata=says("Seconds before it was needed; negative: after.")
    )
    seconds = fields.Dict(keys=fields.String(), values=fields.Float())
    reason = fields.String(allow_none=True)


class PreparationPage(Schema):
    """A page of preparations."""

    preparations = fields.List(fields.Nested(Preparation))
    next = fields.String(allow_none=True)


class LeaseReadiness(Schema):
    """How ready the hosts of a lease are; a state of null: nobody was asked for any yet."""

    state = fields.Enum(Readiness, by_value=True, allow_none=True)
    hosts = fields.Integer(metadata=says("That somebody was asked to get ready."))
    ready = fields.Integer()
    ready_at = Moment(allow_none=True, metadata=says("When the last of them was."))
    early = fields.Float(
        allow_none=True, metadata=says("Seconds before the start; negative: after.")
    )
    reasons = fields.List(
        fields.String(), metadata=says("Why hosts failed, to those who may see preparations.")
    )
    waiting_for = fields.List(
        fields.String(), metadata=says("The hosts without which the lease does not start.")
    )


class Lead(Schema):
    """How long before a lease of this host alone it is asked for, and the evidence."""

    seconds = fields.Float()
    usual = fields.Float(metadata=says("What it usually takes."))
    allowance = fields.Float(metadata=says("How many times that, once in so many cases."))
    own_times = fields.Integer(metadata=says("How many of its own times are known."))
    class_times = fields.Integer(metadata=says("How many of its class."))


class HostReadiness(Schema):
    """How ready a host is for whoever has it next, and what is known of it."""

    resource_id = fields.String(attribute="host.id")
    name = fields.String(attribute="host.external_id")
    hardware = fields.String()
    state = fields.Enum(Readiness, by_value=True, allow_none=True, attribute="shown.state")
    ready_at = Moment(allow_none=True, attribute="shown.ready_at")
    early = fields.Float(allow_none=True, attribute="shown.early")
    set_aside = fields.String(allow_none=True, attribute="known.set_aside")
    set_aside_at = Moment(allow_none=True, attribute="known.set_aside_at")
    up = fields.Boolean(allow_none=True, attribute="known.up", metadata=says("As the cloud says."))
    seen_at = Moment(
        allow_none=True,
        attribute="known.seen_at",
        metadata=says("As of when; of a host that is up, when the cloud heard of it last."),
    )
    times = fields.List(fields.Float(), attribute="known.times")
    lead = fields.Nested(Lead, allow_none=True)


class Share(Schema):
    """How many leases were ready when they started; of a class, in a period from ``since`` on."""

    hardware = fields.String()
    since = Moment(allow_none=True)
    leases = fields.Integer()
    ready_leases = fields.Integer()
    short_notice = fields.Integer(metadata=says("Not ready, as they were asked for too late."))
    ready_share = fields.Float(metadata=says("Of those that were not."))
    hosts = fields.Integer()
    ready_hosts = fields.Integer()
    mean_early = fields.Float(allow_none=True, metadata=says("Seconds, of hosts that were ready."))


class Summary(Schema):
    """The shares of leases that were ready at their start."""

    readiness = fields.List(fields.Nested(Share))


PREPARATION_QUERY, SUMMARY_QUERY = PreparationQuery(), SummaryQuery()
REPORT, HOST_CHANGE = Report(), HostChange()
PREPARATION, PREPARATION_PAGE = Preparation(), PreparationPage()
LEASE_READINESS, HOST_READINESS, SUMMARY = LeaseReadiness(), HostReadiness(), Summary()
