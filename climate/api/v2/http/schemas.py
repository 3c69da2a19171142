"""Fields that several lists share, and the schema of problem documents (RFC 9457)."""

from typing import Any

from marshmallow import INCLUDE, Schema, fields, validate

from climate.api.v2.http.fields import Count, Moment, Strict


def described(text: str) -> dict[str, str]:
    """Return the metadata of a field that describes it in the OpenAPI document."""
    return {"description": text}


def page_of(key: str, item: type[Schema]) -> type[Schema]:
    """Return the schema of a page of a list: its items in ``key``, and a link to the next page."""
    text = described("Link to the next page; null on the last page.")
    keys: dict[str, fields.Field[Any]] = {
        key: fields.List(fields.Nested(item)),
        "next": fields.String(allow_none=True, metadata=text),
    }
    return Schema.from_dict(keys, name=f"{item.__name__}Page")


def sorted_by(names: Any, default: str) -> fields.String:  # noqa: ANN401 - any names
    """Return the field for the order of a list.

    Its value is one of ``names``; with ``-`` before it, the order is descending.
    """
    orders = [prefix + name for name in names for prefix in ("", "-")]
    return fields.String(load_default=default, validate=validate.OneOf(orders))


def wait_seconds() -> Count:
    """Return the field for the seconds that a request may wait for a first item (long polling)."""
    text = described("Seconds to wait for the first item if there is none (long polling).")
    return Count(minimum=0, maximum=60, load_default=0, metadata=text)


class PageQuery(Strict):
    """The query of a page in a list: its size, and where it starts."""

    limit = Count(minimum=1, maximum=1000, load_default=100)
    marker = fields.String(
        metadata=described("Opaque position in the list: take it from the link to the next page.")
    )


class BadValue(Schema):
    """What is wrong with a value in a request, and where the value is.

    Its place is a JSON pointer into the body, a query parameter, or a header.
    """

    pointer = fields.String()
    parameter = fields.String()
    header = fields.String()
    detail = fields.String(required=True)


class Blocker(Schema):
    """A booking that conflicts with the request; names its lease only to the owning project."""

    start = Moment()
    end = Moment()
    lease_id = fields.String()
    lease_name = fields.String()


class Alternative(Schema):
    """A lease that climate would admit now, similar to the rejected one."""

    differs = fields.String(validate=validate.OneOf(["later", "shorter", "fewer", "other"]))
    start = Moment()
    end = Moment()
    amount = fields.Integer()


class Problem(Schema):
    """An error (RFC 9457). The members after ``errors`` depend on its code."""

    class Meta:
        """Accept other members, which plug-ins and later releases may add."""

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
