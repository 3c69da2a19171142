"""Fields that several lists share, and the schema of problem documents."""

from typing import Any

from marshmallow import INCLUDE, Schema, fields, validate

from climate.api.v2.http.fields import Count, Moment, Strict


def described(text: str) -> dict[str, str]:
    """Return the metadata of a field with this description in the OpenAPI document."""
    return {"description": text}


def page_of(key: str, item: type[Schema]) -> type[Schema]:
    """Return the schema of a page: its items in ``key``, and the link to the next page."""
    text = described("Link to the next page; null on the last page.")
    keys: dict[str, fields.Field[Any]] = {
        key: fields.List(fields.Nested(item)),
        "next": fields.String(allow_none=True, metadata=text),
    }
    return Schema.from_dict(keys, name=f"{item.__name__}Page")


def sorted_by(names: Any, default: str) -> fields.String:  # noqa: ANN401 - any names
    """Return the field for the order of a list: a name, or ``-`` and a name for descending."""
    orders = [prefix + name for name in names for prefix in ("", "-")]
    return fields.String(load_default=default, validate=validate.OneOf(orders))


def wait_seconds() -> Count:
    """Return the field for the time of long polling."""
    text = described("Seconds to wait for the first item if there is none (long polling).")
    return Count(minimum=0, maximum=60, load_default=0, metadata=text)


class PageQuery(Strict):
    """The requested page of a list."""

    limit = Count(minimum=1, maximum=1000, load_default=100)
    marker = fields.String(
        metadata=described("Opaque position in the list: take it from the link to the next page.")
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
