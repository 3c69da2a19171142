"""The route of ``/v2/managers``: which manager processes run, and how late their work is."""

from marshmallow import Schema, fields

from climate.api.call import Answer, Call
from climate.api.v2.http import validation
from climate.api.v2.http.fields import Moment
from climate.api.v2.http.schemas import described
from climate.manager.audit import operations


class Loop(Schema):
    """A periodic task of a manager process: how long ago it last succeeded, and how often it runs.

    Times are in seconds.
    """

    age = fields.Float(metadata=described("From its last good run to the heartbeat."))
    interval = fields.Float(metadata=described("Planned time between two runs."))


class Manager(Schema):
    """A manager process, its last heartbeat, and its periodic tasks (loops)."""

    id = fields.String()
    started_at = Moment()
    beat_at = Moment(metadata=described("Its last heartbeat; it sends one every 5 seconds."))
    alive = fields.Boolean(metadata=described("Whether the heartbeat is at most 30 seconds old."))
    loops = fields.Dict(keys=fields.String(), values=fields.Nested(Loop))
    stalled = fields.Dict(
        keys=fields.String(),
        values=fields.Float(),
        metadata=described("Loops that have stalled, and the seconds since their last good run."),
    )


class Lateness(Schema):
    """How much work waits for managers: due events, and notifications that are not published yet.

    climate counts at most 10,000; a larger number is shown as 10,000.
    """

    due = fields.Dict(
        keys=fields.String(),
        values=fields.Integer(),
        metadata=described("Due events that no manager has claimed, by type."),
    )
    oldest_due_at = Moment(allow_none=True, metadata=described("Of the overdue events."))
    unpublished = fields.Integer(metadata=described("Notifications that are not published yet."))
    unpublished_since = Moment(allow_none=True)


class Managers(Schema):
    """The manager processes with a heartbeat in the last day, and the work that waits for them."""

    managers = fields.List(fields.Nested(Manager))
    lateness = fields.Nested(Lateness)
    warnings = fields.List(
        fields.String(), metadata=described("Sentences about absent managers and stalled loops.")
    )
    now = Moment()


_MANAGERS = Managers()


def index(call: Call) -> Answer:
    """List the managers with a heartbeat in the last day, and the work that waits for managers."""
    validation.no_query()
    found = operations.managers_at_work(call.runtime.store)
    managers = [
        {
            "id": manager.id,
            "started_at": manager.started_at,
            "beat_at": manager.beat_at,
            "alive": manager.is_alive(found.now),
            "loops": manager.loops,
            "stalled": manager.stalled(found.now) if manager.is_alive(found.now) else {},
        }
        for manager in found.managers
    ]
    body = {
        "managers": managers,
        "lateness": found.lateness,
        "warnings": found.warnings,
        "now": found.now,
    }
    return _MANAGERS.dump(body), 200
