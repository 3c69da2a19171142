"""Field metadata for OpenAPI, links to the next page, and the schema of problem documents."""

from marshmallow import INCLUDE, Schema, fields, validate

from climate.api.v2.http.fields import Moment


def described(text: str) -> dict[str, str]:
    """Return the metadata of a field with this description in the OpenAPI document."""
    return {"description": text}


def next_page() -> fields.String:
    """Return the field for the link to the next page."""
    return fields.String(
        allow_none=True, metadata=described("Link to the next page; null on the last page.")
    )


class BadValue(Schema):
    """An invalid value: its JSON pointer in the body, its query parameter, or its header."""

    pointer = fields.String()
    parameter = fields.String()
    header = fields.String()
    detail = fields.String(required=True)


class Blocker(Schema):
    """A conflicting booking; contains the lease only if it belongs to the caller's project."""

    start = Moment()
    end = Moment()
    lease_id = fields.String()
    lease_name = fields.String()


class Alternative(Schema):
    """A lease similar to the rejected one that climate would admit now."""

    differs = fields.String(validate=validate.OneOf(["later", "shorter", "fewer", "other"]))
    start = Moment()
    end = Moment()
    amount = fields.Integer()


class Problem(Schema):
    """An error (RFC 9457). The members after ``errors`` depend on the code; more may follow."""

    class Meta:
        """Plug-ins and later releases may add members."""

        unknown = INCLUDE

    type = fields.String(required=True)
    title = fields.String(required=True)
    status = fields.Integer(required=True)
    detail = fields.String(required=True)
    code = fields.String(required=True)
    errors = fields.List(fields.Nested(BadValue))
    etag = fields.String(metadata=described("The current ETag of the lease (precondition_failed)."))
    reservation = fields.Integer(
        allow_none=True,
        metadata=described(
            "Index of the reservation without enough resources, from 0; null: each fits alone, but"
            " not all together (not_enough_resources)."
        ),
    )
    oldest = fields.Integer(
        metadata=described(
            "Sequence number of the oldest kept notification (notifications_removed)."
        )
    )
    asked = fields.Float(
        metadata=described("Requested amount: units, or the value that exceeds a limit.")
    )
    matching = fields.Integer(
        metadata=described("Number of resources that match and are large enough.")
    )
    free = fields.Integer(metadata=described("Units that are free during the whole window."))
    missing = fields.Integer(
        allow_none=True, metadata=described("Missing units; null if reservation is null.")
    )
    blocked_by = fields.List(fields.Nested(Blocker))
    alternatives = fields.List(fields.Nested(Alternative))
