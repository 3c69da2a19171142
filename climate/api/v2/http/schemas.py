"""Schemas that several nouns of the v2 API share: descriptions, pages, and problem documents."""

from marshmallow import INCLUDE, Schema, fields, validate

from climate.api.v2.http.fields import Moment


def says(text: str) -> dict[str, str]:
    """Return the metadata of a field that is described so."""
    return {"description": text}


def may_be_left_out(schema: Schema) -> set[str]:
    """Return what a plugin's schema asks for although it may be null: v2 puts the null there."""
    return {name for name, one in schema.fields.items() if one.required and one.allow_none}


def next_page() -> fields.String:
    """Return the link to the next page."""
    return fields.String(
        allow_none=True, metadata=says("Where the next page is; null on the last.")
    )


class BadValue(Schema):
    """One bad value: where it is in the body (a JSON pointer) or which parameter of the query."""

    pointer = fields.String()
    parameter = fields.String()
    header = fields.String()
    detail = fields.String(required=True)


class Blocker(Schema):
    """A booking in the way; of own ones the lease is told."""

    start = Moment()
    end = Moment()
    lease_id = fields.String()
    lease_name = fields.String()


class Alternative(Schema):
    """A lease like the one that was refused, which would be admitted now."""

    differs = fields.String(validate=validate.OneOf(["later", "shorter", "fewer", "other"]))
    start = Moment()
    end = Moment()
    amount = fields.Integer()


class Problem(Schema):
    """A refusal (RFC 9457). What follows the errors is of some codes, and there may be more."""

    class Meta:
        """Codes have members of their own."""

        unknown = INCLUDE

    type = fields.String(required=True)
    title = fields.String(required=True)
    status = fields.Integer(required=True)
    detail = fields.String(required=True)
    code = fields.String(required=True)
    errors = fields.List(fields.Nested(BadValue))
    etag = fields.String(metadata=says("What the lease is now (precondition_failed)."))
    reservation = fields.Integer(
        allow_none=True,
        metadata=says(
            "Which was short, from 0; null: each would fit alone (not_enough_resources)."
        ),
    )
    oldest = fields.Integer(metadata=says("The first number that is kept (notifications_removed)."))
    asked = fields.Float(metadata=says("What was asked for: units, or what there is a limit of."))
    matching = fields.Integer(metadata=says("Resources that match and are large enough."))
    free = fields.Integer(metadata=says("Units that are free all through the window."))
    missing = fields.Integer(allow_none=True, metadata=says("Units that are missing."))
    blocked_by = fields.List(fields.Nested(Blocker))
    alternatives = fields.List(fields.Nested(Alternative))
