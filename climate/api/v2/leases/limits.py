"""The route of ``/v2/limits``: how much a project and a user may lease, and how much they use."""

from collections.abc import Sequence
from typing import Any

from marshmallow import Schema, fields, validate

from climate.api.call import Answer, Call
from climate.api.v2.http import validation
from climate.api.v2.http.fields import Moment, Strict, flag
from climate.api.v2.http.schemas import described
from climate.core.limits import Rules
from climate.manager.admission.limits import lease_use, limits
from climate.manager.admission.limits.limits import Account


class LimitValues(Schema):
    """The limits of a project or a user. Null means unlimited; times are in seconds."""

    leases = fields.Integer(allow_none=True)
    hosts = fields.Integer(allow_none=True)
    vcpus = fields.Integer(allow_none=True)
    gigabytes = fields.Integer(allow_none=True)
    floatingips = fields.Integer(allow_none=True)
    networks = fields.Integer(allow_none=True)
    host_hours = fields.Integer(allow_none=True)
    duration = fields.Integer(allow_none=True)
    horizon = fields.Integer(allow_none=True)
    extension_window = fields.Integer(allow_none=True)
    extension = fields.Integer(allow_none=True)


class Used(Schema):
    """How much of its limits a project or a user uses.

    ``leases`` is the number of leases that are not over. ``host_hours`` is the largest sum of
    host-hours in any span with the length ``Limits.period``. The other numbers are the largest ones
    that are booked at the same time, now or later. ``gigabytes`` are GiB of volumes.
    """

    leases = fields.Integer()
    hosts = fields.Integer()
    vcpus = fields.Integer()
    gigabytes = fields.Integer()
    floatingips = fields.Integer()
    networks = fields.Integer()
    host_hours = fields.Float()


class LimitedParty(Schema):
    """A project or a user (``scope``), with its limits and how much of them it uses."""

    scope = fields.String()
    id = fields.String(attribute="owner_id")
    limits = fields.Nested(LimitValues)
    used = fields.Nested(Used, attribute="usage")


class Limits(Schema):
    """The limits of a project and a user, and how much of them they use.

    ``apply`` is false if no limits apply to them, for instance because the user is an operator.
    ``period`` is the length in seconds of the spans in which host-hours are summed.
    """

    apply = fields.Boolean()
    period = fields.Integer()
    parties = fields.List(fields.Nested(LimitedParty))


class LeaseUse(Schema):
    """How much one lease uses of the limits of a project or user."""

    lease_id = fields.String(
        allow_none=True,
        metadata=described("null: a lease of another project, or a deleted reservation."),
    )
    lease_name = fields.String(allow_none=True)
    start = Moment()
    end = Moment()
    hosts = fields.Integer()
    vcpus = fields.Float()
    host_hours = fields.Float(metadata=described("Over the whole length of the lease."))


class PartyWithLeases(LimitedParty):
    """A project or a user, with its limits, its usage, and the leases that use the most."""

    leases = fields.List(
        fields.Nested(LeaseUse),
        metadata=described("Up to 100 leases of hosts, those with most host-hours first."),
    )


class LimitsWithLeases(Limits):
    """The limits of a project and a user, with the leases that use the most."""

    parties = fields.List(fields.Nested(PartyWithLeases))


class LimitsQuery(Strict):
    """The query parameters of limits: the project and the user; by default those of the caller."""

    leases = flag(load_default=False, metadata=described("Add the leases that use most."))
    project_id = fields.String(
        validate=validate.Length(1, 255),
        metadata=described("Another project. Requires the policy climate:limits:get_all."),
    )
    user_id = fields.String(
        validate=validate.Length(1, 255),
        metadata=described("Another user. Requires the policy climate:limits:get_all."),
    )


LIMITS, LIMITS_WITH_LEASES, QUERY = Limits(), LimitsWithLeases(), LimitsQuery()


def show_limits(call: Call) -> Answer:
    """Show the limits of your project and of your user, and how much of them is used."""
    query, caller = validation.query(QUERY), call.caller
    settings, store = call.runtime.settings.limits, call.runtime.store
    project_id, user_id, roles = caller.project_id, caller.user_id, caller.roles
    parties = limits.parties_of(project_id, user_id)
    if "project_id" in query or "user_id" in query:
        call.require("limits:get_all")
        project_id, user_id, roles = query.get("project_id", ""), query.get("user_id", ""), ()
        parties = [party for party in limits.parties_of(project_id, user_id) if party.owner_id]
    accounts = limits.show(store, settings, parties)
    answer = body(settings, accounts, is_limited=settings.apply_to(project_id, user_id, roles))
    if not query["leases"]:
        return LIMITS.dump(answer), 200
    seen_project = None if call.may("leases:get_all") else caller.project_id
    uses = lease_use.find(store, settings, parties, seen_project)
    parties_with_leases = [
        {
            "scope": account.scope,
            "owner_id": account.owner_id,
            "limits": account.limits,
            "usage": account.usage,
            "leases": leases,
        }
        for account, leases in zip(accounts, uses, strict=True)
    ]
    return LIMITS_WITH_LEASES.dump({**answer, "parties": parties_with_leases}), 200


def body(settings: Rules, accounts: Sequence[Account], *, is_limited: bool) -> dict[str, Any]:
    """Return ``accounts``, limits and usage of a project and a user, as a dict for ``Limits``.

    ``settings`` contains the period for host-hours. ``is_limited`` is false if no limits apply to
    the project and the user.
    """
    period = int(settings.period.total_seconds())
    return {"apply": is_limited, "period": period, "parties": accounts}
