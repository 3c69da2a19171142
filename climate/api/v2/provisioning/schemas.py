"""Schemas of preparations, shutdowns and readiness of hosts.

A preparation is a task to make a host ready for a lease. A shutdown is a task to switch an idle
host off. Provisioners are the programs that do these tasks.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from marshmallow import Schema, ValidationError, fields, validate, validates_schema

from climate.api.v2.http.fields import Moment, Strict, flag
from climate.api.v2.http.schemas import PageQuery, described, page_of, sorted_by, wait_seconds
from climate.core.page import PREPARATION_SORTS, SHUTDOWN_SORTS
from climate.core.provisioning.preparation import PreparationState
from climate.core.provisioning.readiness import Period, Readiness
from climate.core.provisioning.shutdown import ShutdownState

_MAX_PHASES = 32
_MAX_SECONDS = 366 * 86400
# The errors for states that need a reason.
_WITHOUT_REASON = {
    PreparationState.FAILED: "Say why it failed.",
    ShutdownState.KEPT: "Say why it is kept on.",
}


def _states(states: Iterable[StrEnum]) -> fields.List[str]:
    values = [state.value for state in states]
    return fields.List(
        fields.String(validate=validate.OneOf(values)),
        load_default=list,
        validate=validate.Length(max=len(values)),
    )


class _TaskQuery(PageQuery):
    node = fields.String()
    hardware = fields.String()
    claimable = flag(
        load_default=False,
        metadata=described(
            "Only tasks that no provisioner has claimed, or whose claim has expired."
        ),
    )


class PreparationQuery(_TaskQuery):
    """The query parameters of the list of preparations: filter, order, page, and waiting time.

    The waiting time is how many seconds the request waits if there is no such preparation yet.
    """

    sort = sorted_by(PREPARATION_SORTS, "needed")
    state = _states(PreparationState)
    lease = fields.String()
    wait = wait_seconds()


class SummaryQuery(Strict):
    """The query parameters of statistics: start, end, and the length of the periods.

    Statistics have a value for each period between start and end.
    """

    since = Moment(required=True)
    until = Moment(required=True)
    period = fields.String(
        load_default=Period.ALL.value,
        validate=validate.OneOf([period.value for period in Period]),
    )


class _Report(Strict):
    owner = fields.String(
        required=True,
        validate=validate.Length(1, 255),
        metadata=described("The reporting process: a name that no other process uses."),
    )
    claim_seconds = fields.Integer(
        strict=True,
        load_default=120,
        validate=validate.Range(3, 3600),
        metadata=described("Duration of the claim in seconds; a report with accepted renews it."),
    )
    reason = fields.String(load_default="", validate=validate.Length(max=2000))

    @validates_schema
    def _has_reason(self, data: dict[str, Any], **_kwargs: Any) -> None:
        if data["state"] in _WITHOUT_REASON and not data["reason"].strip():
            raise ValidationError(_WITHOUT_REASON[data["state"]], "reason")


class Report(_Report):
    """A provisioner's report on the progress of a preparation. Reports are idempotent."""

    state = fields.String(
        required=True,
        validate=validate.OneOf(["wanted", "accepted", "ready", "failed"]),
        metadata=described("accepted: claim it, or renew the claim; wanted: release the claim."),
    )
    seconds = fields.Dict(
        keys=fields.String(validate=validate.Length(1, 64)),
        values=fields.Float(allow_nan=False, validate=validate.Range(0, _MAX_SECONDS)),
        load_default=dict,
        validate=validate.Length(max=_MAX_PHASES),
        metadata=described("Duration of each phase in seconds."),
    )
    cold = fields.Boolean(
        load_default=False,
        metadata=described(
            "Whether the host was powered off before; climate learns only from these durations."
        ),
    )


class HostChange(Strict):
    """The body of a request to quarantine a host, or to end its quarantine."""

    set_aside = fields.String(
        required=True,
        allow_none=True,
        validate=validate.Length(1, 2000),
        metadata=described(
            "Reason of the quarantine; null ends it: the host is bookable if it works."
        ),
    )


class _Task(Schema):
    id = fields.String()
    node = fields.String()
    hardware = fields.String(
        metadata=described(
            "The hardware class: the property hardware, or else the hypervisor type."
        )
    )
    resource_id = fields.String()
    wanted_at = Moment()
    owner = fields.String(allow_none=True)
    claimed_until = Moment(allow_none=True)
    attempt = fields.Integer(
        metadata=described("Number of the attempt; after the first, the work may be partly done.")
    )
    accepted_at = Moment(allow_none=True)
    over_at = Moment(allow_none=True)
    reason = fields.String(
        allow_none=True,
        metadata=described("Why the preparation failed, or why the host was left as it was."),
    )


class Preparation(_Task):
    """A preparation: a task of provisioners to make a host ready by ``needed_at``."""

    state = fields.Enum(PreparationState, by_value=True)
    lease_id = fields.String()
    reservation_id = fields.String()
    needed_at = Moment()
    lead = fields.Float(metadata=described("Planned duration in seconds."))
    ready_at = Moment(allow_none=True)
    early = fields.Float(
        allow_none=True, metadata=described("Seconds between ready and needed; negative: late.")
    )
    seconds = fields.Dict(keys=fields.String(), values=fields.Float())


PreparationPage = page_of("preparations", Preparation)


class LeaseReadiness(Schema):
    """Whether the hosts of a lease are ready.

    ``state`` is null if no host of the lease has a preparation yet.
    """

    state = fields.Enum(Readiness, by_value=True, allow_none=True)
    hosts = fields.Integer(metadata=described("Hosts with a preparation."))
    ready = fields.Integer()
    ready_at = Moment(allow_none=True, metadata=described("When the last host became ready."))
    early = fields.Float(
        allow_none=True, metadata=described("Seconds between ready and start; negative: late.")
    )
    reasons = fields.List(
        fields.String(),
        metadata=described(
            "Why hosts failed, and which hosts no provisioner has claimed for 30 seconds. Requires"
            " the policy climate:preparations:get."
        ),
    )
    waiting_for = fields.List(
        fields.String(), metadata=described("The hosts for which the start of the lease waits.")
    )


class Lead(Schema):
    """The lead time of a host: how long before the start of a lease the host's preparation begins.

    The value is for a lease of this host alone. For a lease of several hosts, the lead time of each
    host is longer, because all of them must be ready in time.
    """

    seconds = fields.Float()
    usual = fields.Float(metadata=described("Usual duration in seconds."))
    allowance = fields.Float(
        metadata=described("Safety factor: lead time divided by the usual duration.")
    )
    own_times = fields.Integer(metadata=described("Number of known durations of this host."))
    class_times = fields.Integer(
        metadata=described("Number of known durations of its hardware class.")
    )


class HostReadiness(Schema):
    """Whether a host is ready for its next lease, and what climate knows about preparing it.

    ``state``, ``ready_at`` and ``early`` are about the next lease. ``early`` is the number of
    seconds between ``ready_at`` and the time when the host was needed (negative: late).
    ``set_aside`` is the reason of a quarantine. ``times`` are the durations of the last
    preparations in seconds.
    """

    resource_id = fields.String(attribute="host.id")
    name = fields.String(attribute="host.external_id")
    hardware = fields.String()
    state = fields.Enum(Readiness, by_value=True, allow_none=True, attribute="shown.state")
    ready_at = Moment(allow_none=True, attribute="shown.ready_at")
    early = fields.Float(allow_none=True, attribute="shown.early")
    set_aside = fields.String(allow_none=True, attribute="known.set_aside")
    set_aside_at = Moment(allow_none=True, attribute="known.set_aside_at")
    up = fields.Boolean(
        allow_none=True, attribute="known.up", metadata=described("According to the cloud.")
    )
    seen_at = Moment(
        allow_none=True,
        attribute="known.seen_at",
        metadata=described(
            "When the cloud was queried; for a host that is up, its last heartbeat."
        ),
    )
    times = fields.List(fields.Float(), attribute="known.times")
    lead = fields.Nested(Lead, allow_none=True)


class Share(Schema):
    """How many leases had all hosts ready at their start, for a hardware class and a period.

    ``ready_share`` is the fraction, from 0 to 1, of leases with all hosts ready. It ignores leases
    that were not ready because users created them too late.
    """

    hardware = fields.String()
    since = Moment(allow_none=True)
    leases = fields.Integer()
    ready_leases = fields.Integer()
    short_notice = fields.Integer(
        metadata=described("Leases that were not ready because they were created too late.")
    )
    ready_share = fields.Float(
        metadata=described("Share of ready leases, without those created too late.")
    )
    hosts = fields.Integer()
    ready_hosts = fields.Integer()
    mean_early = fields.Float(
        allow_none=True, metadata=described("Mean seconds between ready and needed.")
    )


class Summary(Schema):
    """How many leases had all hosts ready at their start, by hardware class and period."""

    readiness = fields.List(fields.Nested(Share))


class ShutdownQuery(_TaskQuery):
    """The query parameters of the list of shutdowns: filter, order and page."""

    sort = sorted_by(SHUTDOWN_SORTS, "wanted")
    state = _states(state for state in ShutdownState if state is not ShutdownState.ON)


class ShutdownReport(_Report):
    """A provisioner's report on the progress of a shutdown. Reports are idempotent."""

    state = fields.String(
        required=True,
        validate=validate.OneOf(["wanted", "accepted", "off", "on", "kept"]),
        metadata=described(
            "accepted: claim it, or renew the claim; wanted: release the claim; kept: give it up."
        ),
    )


class Shutdown(_Task):
    """A shutdown: a task of provisioners to switch a host off while no lease needs the host."""

    state = fields.Enum(ShutdownState, by_value=True)
    ahead = fields.Float(
        metadata=described("Seconds: a booking that starts sooner prevents the shutdown.")
    )
    off_at = Moment(allow_none=True)


ShutdownPage = page_of("shutdowns", Shutdown)


class Saved(Schema):
    """For how many host-hours hosts were switched off, for a hardware class and a period."""

    hardware = fields.String()
    since = Moment(allow_none=True)
    host_hours = fields.Float()
    shutdowns = fields.Integer(metadata=described("Number of shutdowns."))


class Energy(Schema):
    """For how many host-hours hosts were switched off, by hardware class and period."""

    saved = fields.List(fields.Nested(Saved))


PREPARATION_QUERY, SHUTDOWN_QUERY = PreparationQuery(), ShutdownQuery()
REPORT, SHUTDOWN_REPORT = Report(), ShutdownReport()
PREPARATION, PREPARATION_PAGE = Preparation(), PreparationPage()
SHUTDOWN, SHUTDOWN_PAGE = Shutdown(), ShutdownPage()
SUMMARY_QUERY, SUMMARY, ENERGY = SummaryQuery(), Summary(), Energy()
HOST_CHANGE, HOST_READINESS, LEASE_READINESS = HostChange(), HostReadiness(), LeaseReadiness()
