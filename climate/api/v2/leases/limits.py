"""The route of ``/v2/limits``: the limits on leases of a project and a user, and their usage."""

from collections.abc import Sequence
from typing import Any

from marshmallow import Schema, fields

from climate.api.call import Answer, Call
from climate.core.limits import Rules
from climate.manager.admission import limits
from climate.manager.admission.limits import Account


class LimitValues(Schema):
    """The limits of a project or a user. Null means unlimited; times are in seconds."""

    leases = fields.Integer(allow_none=True)
    hosts = fields.Integer(allow_none=True)
    vcpus = fields.Integer(allow_none=True)
    host_hours = fields.Integer(allow_none=True)
    duration = fields.Integer(allow_none=True)
    horizon = fields.Integer(allow_none=True)
    extension_window = fields.Integer(allow_none=True)
    extension = fields.Integer(allow_none=True)


class Used(Schema):
    """What counts against the limits of a project or a user.

    It is the number of current leases, the most hosts and vcpus at any time, and the host-hours in
    a period.
    """

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
    """The limits of the caller's project and user, with their usage.

    ``apply`` is whether limits apply to the caller at all. ``period`` is the length in seconds of
    the period in which host-hours count.
    """

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
    """Return the limits and the usage in ``accounts`` as the data of an answer.

    ``is_limited`` is whether limits apply to the caller.
    """
    period = int(settings.period.total_seconds())
    return {"apply": is_limited, "period": period, "parties": accounts}
