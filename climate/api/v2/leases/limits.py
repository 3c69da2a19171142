"""``/v2/limits``: the limits on leases of a project and a user, and what counts against them."""

from collections.abc import Sequence
from typing import Any

from marshmallow import Schema, fields

from climate.api.call import Answer, Call
from climate.core.limits import Rules
from climate.manager.admission import limits
from climate.manager.admission.limits import Account


class LimitValues(Schema):
    """The limits of a project or a user; null: unlimited. Times are in seconds."""

    leases = fields.Integer(allow_none=True)
    hosts = fields.Integer(allow_none=True)
    vcpus = fields.Integer(allow_none=True)
    host_hours = fields.Integer(allow_none=True)
    duration = fields.Integer(allow_none=True)
    horizon = fields.Integer(allow_none=True)
    extension_window = fields.Integer(allow_none=True)
    extension = fields.Integer(allow_none=True)


class Used(Schema):
    """Usage: current leases, the peaks of hosts and vcpus, and host-hours in a period."""

    leases = fields.Integer()
    hosts = fields.Integer()
    vcpus = fields.Integer()
    host_hours = fields.Float()


class LimitedParty(Schema):
    """A project or a user, with its limits and its usage."""

    scope = fields.String()
    id = fields.String(attribute="owner_id")
    limits = fields.Nested(LimitValues)
    used = fields.Nested(Used, attribute="usage")


class Limits(Schema):
    """Whether limits apply to the caller, the rolling period in seconds, and limits and usage."""

    apply = fields.Boolean()
    period = fields.Integer()
    parties = fields.List(fields.Nested(LimitedParty))


LIMITS = Limits()


def show_limits(call: Call) -> Answer:
    """Show the limits of your project and user, and the usage that counts against them."""
    caller = call.caller
    settings = call.runtime.settings.limits
    parties = limits.parties_of(caller.project_id, caller.user_id)
    accounts = limits.show(call.runtime.store, settings, parties)
    is_limited = settings.apply_to(caller.project_id, caller.user_id, caller.roles)
    return LIMITS.dump(body(settings, accounts, is_limited=is_limited)), 200


def body(settings: Rules, accounts: Sequence[Account], *, is_limited: bool) -> dict[str, Any]:
    """Return what ``LIMITS`` dumps; ``is_limited``: whether limits apply to the caller."""
    period = int(settings.period.total_seconds())
    return {"apply": is_limited, "period": period, "parties": accounts}
