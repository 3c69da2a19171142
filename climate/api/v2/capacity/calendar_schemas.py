"""Schemas of the calendar, which shows what occupies resources over time."""

from marshmallow import Schema, fields, validate

from climate.api.v2.http.fields import NOW, Count, Moment, Strict
from climate.api.v2.http.schemas import described, wait_seconds

MAX_ROWS, MAX_BUCKET_ROWS = 200, 1_000
MIN_RESOLUTION, MAX_RESOLUTION = 300, 86_400
_NOT_A_VERSION = "This is no version of the calendar: take it from an earlier answer."


class CalendarQuery(Strict):
    """The query parameters of the calendar: which resources, which window, and in which form."""

    resource_type = fields.String(required=True)
    start = Moment(words=(NOW,), metadata=described("Start of the window; default: now."))
    end = Moment(required=True, metadata=described("End of the window, at most 366 days later."))
    properties = fields.String(
        metadata=described('A property expression as JSON, such as ["==", "$vcpus", 64].')
    )
    q = fields.String(
        validate=validate.Length(1, 255),
        metadata=described("A part of the resources' names, in upper or lower case."),
    )
    group_by = fields.String(
        validate=validate.Length(1, 64),
        metadata=described("A property: rows are in the order of its values."),
    )
    sort = fields.String(load_default="name", validate=validate.OneOf(["name", "id"]))
    offset = Count(minimum=0, maximum=10_000_000, load_default=0)
    limit = Count(
        minimum=1,
        maximum=MAX_BUCKET_ROWS,
        load_default=100,
        metadata=described(f"Rows: at most {MAX_ROWS} with intervals."),
    )
    resolution = Count(
        minimum=0,
        maximum=MAX_RESOLUTION,
        load_default=0,
        metadata=described(
            f"Seconds of a bucket, {MIN_RESOLUTION} to {MAX_RESOLUTION}; 0: intervals."
        ),
    )
    whose = fields.String(
        load_default="project",
        validate=validate.OneOf(["project", "all"]),
        metadata=described("Whose leases to name; all requires the policy calendar:get_all."),
    )


class CalendarGroup(Schema):
    """A group of rows: resources with the same value of a property.

    The query parameter ``group_by`` names the property. ``name`` is the value; null if the
    resources do not have the property.
    """

    name = fields.String(allow_none=True)
    first = fields.Integer(metadata=described("Offset of its first row."))
    rows = fields.Integer()
    free_now = fields.Integer(
        metadata=described("Resources that are bookable, and that nothing occupies now.")
    )


class CalendarRow(Schema):
    """A row of the calendar: a resource, and when it is occupied.

    If the query has no resolution, ``x`` lists the exact intervals. Otherwise the window is divided
    into buckets of equal length, and ``b`` and ``own`` are texts with one digit for each bucket.
    The digit in ``b`` is the part of the bucket in which the resource is occupied, from 0 (none) to
    9 (all). The digit in ``own`` is 1 if a lease of the caller's project has the resource in the
    bucket, else 0.
    """

    id = fields.String()
    name = fields.String()
    group = fields.String(allow_none=True)
    state = fields.String()
    x = fields.List(
        fields.Integer(),
        metadata=described(
            "Intervals: offset and length in seconds, and kind (0 taken, 1 own, 2 cleaning, 3 not"
            " bookable, 4 held, 5 getting ready, 6 shared). After kind 1 follows an index into"
            " leases, after kind 6 how many tenths are taken."
        ),
    )
    b = fields.String(
        metadata=described("A digit for each bucket: 0 is free all through, 9 is never free.")
    )
    own = fields.String(metadata=described("For each bucket 1 where own leases are, else 0."))


class CalendarLease(Schema):
    """A lease that the caller may see; ``mine`` is true if it belongs to the caller's project."""

    id = fields.String()
    name = fields.String()
    status = fields.String()
    degraded = fields.Boolean()
    start = Moment()
    end = Moment()
    project_id = fields.String()
    mine = fields.Boolean()


class Calendar(Schema):
    """A page of the calendar: rows of resources, and the leases that the rows refer to."""

    start = Moment()
    end = Moment()
    resolution = fields.Integer()
    version = fields.String(metadata=described("For /v2/calendar/changes."))
    total = fields.Integer(metadata=described("Rows on all pages."))
    reservable = fields.Integer(
        metadata=described("Rows on all pages that new leases can book: not failing or set aside.")
    )
    offset = fields.Integer()
    groups = fields.List(
        fields.Nested(CalendarGroup), metadata=described("All groups; only with group_by.")
    )
    rows = fields.List(fields.Nested(CalendarRow))
    leases = fields.List(fields.Nested(CalendarLease))


class ChangesQuery(Strict):
    """The query parameters for changes of the calendar.

    ``after`` is the version of the calendar that the client has read. The answer lists the changes
    since this version.
    """

    after = fields.String(
        validate=validate.Regexp(r"[0-9]{1,18}(\.[0-9a-f]{8})?\Z", error=_NOT_A_VERSION),
        metadata=described("A version from an earlier answer; without it: the present version."),
    )
    wait = wait_seconds()
    resource_type = fields.String()


class ChangedWindow(Schema):
    """A span of whole days (UTC) for which the calendar shows something different than before."""

    start = Moment()
    end = Moment()


class Changes(Schema):
    """The spans of the calendar that have changed since the version in the request."""

    version = fields.String(metadata=described("For the next request."))
    reset = fields.Boolean(
        metadata=described("The version is too old: anything may have changed, so read all again.")
    )
    changes = fields.List(fields.Nested(ChangedWindow))


CALENDAR_QUERY, CHANGES_QUERY = CalendarQuery(), ChangesQuery()
