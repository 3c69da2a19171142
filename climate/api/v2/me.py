"""The route of ``/v2/me``: who the caller is, what it may do, and what this service offers."""

from typing import Any

from marshmallow import Schema, fields

from climate.api.call import Answer, Call
from climate.api.policy import RULES
from climate.api.v2.http import validation
from climate.api.v2.http.fields import Moment

_PREFIX = "climate:"
_NAMES = [rule.name.removeprefix(_PREFIX) for rule in RULES if rule.name.startswith(_PREFIX)]


class Party(Schema):
    """A user or a project. Without Keystone, its name is its id."""

    id = fields.String()
    name = fields.String()


class Me(Schema):
    """The caller, what it may do, and what this service offers.

    ``allowed`` maps the name of each policy rule to true if the rule allows the caller to act on
    objects of the caller's project, else to false. ``expires_at`` is when the token or the session
    ends (null: never). ``cleaning_time``, in seconds, is how long a resource stays booked after a
    lease.
    """

    user = fields.Nested(Party)
    project = fields.Nested(Party)
    roles = fields.List(fields.String())
    allowed = fields.Dict(keys=fields.String(), values=fields.Boolean())
    now = Moment()
    expires_at = Moment(allow_none=True)
    cleaning_time = fields.Integer()
    resource_types = fields.List(fields.String())
    features = fields.Dict(keys=fields.String(), values=fields.Boolean())
    authentication = fields.String()


ME = Me()


def show(call: Call) -> Answer:
    """Show who you are, what you may do, and what this service offers."""
    validation.no_query()
    return body(call), 200


def body(call: Call) -> dict[str, Any]:
    """Return the caller, its rights and the features of the service, as a dict for JSON."""
    caller, settings, conf = call.caller, call.runtime.settings, call.api.conf
    answer = {
        "user": {"id": caller.user_id, "name": caller.user_name or caller.user_id},
        "project": {"id": caller.project_id, "name": caller.project_name or caller.project_id},
        "roles": caller.roles,
        "allowed": {name: call.may(name) for name in _NAMES},
        "now": call.runtime.clock.now(),
        "expires_at": caller.expires_at,
        "cleaning_time": int(settings.cleaning_time.total_seconds()),
        "resource_types": sorted(call.runtime.plugins),
        "features": {
            "limits": settings.limits.enabled,
            "provisioning": settings.provisioning is not None,
            "power_saving": settings.provisioning is not None
            and settings.provisioning.energy is not None,
            "subscriptions": settings.webhooks.per_project > 0,
            "email": settings.email is not None and settings.email.per_project > 0,
            "feeds": settings.feeds_per_project > 0,
        },
        "authentication": "none" if conf.api.auth_strategy == "noauth" else "keystone",
    }
    return dict(ME.dump(answer))
