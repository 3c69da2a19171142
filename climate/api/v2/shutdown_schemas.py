"""What v2 takes and gives about hosts that are switched off, and what that saves."""

from typing import Any

from marshmallow import Schema, ValidationError, fields, validate, validates_schema

from climate.api.v2.http.fields import Moment, Strict, flag
from climate.api.v2.http.queries import PageQuery, sorted_by
from climate.api.v2.leases.schemas import says
from climate.core.page import SHUTDOWN_SORTS
from climate.core.provisioning.shutdown import ShutdownState

_STATES = [one.value for one in ShutdownState if one is not ShutdownState.ON]
_REPORTED = ["wanted", "accepted", "off", "on", "kept"]


class ShutdownQuery(PageQuery):
    """Which shutdowns, in which order."""

    sort = sorted_by(SHUTDOWN_SORTS, "wanted")
    state = fields.List(
        fields.String(validate=validate.OneOf(_STATES)),
        load_default=list,
        validate=validate.Length(max=len(_STATES)),
    )
    node = fields.String()
    hardware = fields.String()
    claimable = flag(
        load_default=False,
        metadata=says("Only what nobody has, or somebody who has not said so for too long."),
    )


class ShutdownReport(Strict):
    """What somebody who switches a host off says. It may be said twice."""

    state = fields.String(
        required=True,
        validate=validate.OneOf(_REPORTED),
        metadata=says(
            "accepted claims it, or keeps the claim; wanted hands it back; kept: nothing came of"
            " it."
        ),
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
    reason = fields.String(load_default="", validate=validate.Length(max=2000))

    @validates_schema
    def _has_reason(self, data: dict[str, Any], **_kwargs: Any) -> None:
        if data["state"] == ShutdownState.KEPT and not data["reason"].strip():
            raise ValidationError("Say why it is kept on.", "reason")


class Shutdown(Schema):
    """A host that is to be without power while nobody needs it, or was."""

    id = fields.String()
    state = fields.Enum(ShutdownState, by_value=True)
    node = fields.String()
    hardware = fields.String(metadata=says("Its class: the property hardware, or the hypervisor."))
    resource_id = fields.String()
    wanted_at = Moment()
    ahead = fields.Float(metadata=says("Seconds; a booking that begins sooner forbids it."))
    owner = fields.String(allow_none=True)
    claimed_until = Moment(allow_none=True)
    attempt = fields.Integer(metadata=says("From 2 on, something may have been done before."))
    accepted_at = Moment(allow_none=True)
    off_at = Moment(allow_none=True)
    over_at = Moment(allow_none=True)
    reason = fields.String(allow_none=True, metadata=says("Why it was kept on."))


class ShutdownPage(Schema):
    """A page of shutdowns."""

    shutdowns = fields.List(fields.Nested(Shutdown))
    next = fields.String(allow_none=True)


class Saved(Schema):
    """How long hosts were off; of a class, in a period from ``since`` on."""

    hardware = fields.String()
    since = Moment(allow_none=True)
    host_hours = fields.Float()
    shutdowns = fields.Integer(metadata=says("How often a host went off in the period."))


class Energy(Schema):
    """What was saved by switching hosts off."""

    saved = fields.List(fields.Nested(Saved))


SHUTDOWN_QUERY, SHUTDOWN_REPORT = ShutdownQuery(), ShutdownReport()
SHUTDOWN, SHUTDOWN_PAGE, ENERGY = Shutdown(), ShutdownPage(), Energy()
