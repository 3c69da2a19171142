"""Schema fields that several lists share, and the schema of problem documents (RFC 9457)."""

from typing import Any

from marshmallow import INCLUDE, Schema, fields, validate

from climate.api.v2.http.fields import Count, Moment, Strict


def described(text: str) -> dict[str, str]:
    """Return field metadata that contains ``text`` as the description for the OpenAPI document."""
    return {"description": text}


def page_of(key: str, item: type[Schema]) -> type[Schema]:
    """Return the schema of a page of a list.

    A page contains a list of ``item`` in the field ``key``, and a link to the next page in the
    field ``next``.
    """
    text = described("Link to the next page; null on the last page.")
    keys: dict[str, fields.Field[Any]] = {
        key: fields.List(fields.Nested(item)),
        "next": fields.String(allow_none=True, metadata=text),
    }
    return Schema.from_dict(keys, name=f"{item.__name__}Page")


def sorted_by(names: Any, default: str) -> fields.String:  # noqa: ANN401 - any names
    """Return the schema field for the order of a list.

    A client sends one of ``names``, such as ``start``, or ``-start`` for descending order.
    """
    orders = [prefix + name for name in names for prefix in ("", "-")]
    return fields.String(load_default=default, validate=validate.OneOf(orders))


def wait_seconds() -> Count:
    """Return the schema field of a query parameter for long polling.

    Its value is how many seconds the request may wait if the list is empty. The request is answered
    as soon as the list has an item.
    """
    text = described("Seconds to wait for the first item if there is none (long polling).")
    return Count(minimum=0, maximum=60, load_default=0, metadata=text)


class PageQuery(Strict):
    """The query parameters of a page of a list: its size, and where it starts."""

    limit = Count(minimum=1, maximum=1000, load_default=100)
    marker = fields.String(
        metadata=described("Opaque position in the list: take it from the link to the next page.")
    )


class BadValue(Schema):
    """An invalid value in a request: why it is invalid (``detail``), and where it is.

    One of the other fields names the place: ``pointer`` is a JSON pointer into the body, such as
    ``#/reservations/0/params``; ``parameter`` is the name of a query parameter; ``header`` is the
    name of a header.
    """

    pointer = fields.String()
    parameter = fields.String()
    header = fields.String()
    detail = fields.String(required=True)


class Blocker(Schema):
    """A booking of another lease that conflicts with the request.

    The lease is named only if it belongs to the caller's project.
    """

    start = Moment()
    end = Moment()
    lease_id = fields.String()
    lease_name = fields.String()


class Alternative(Schema):
    """A lease that is similar to the rejected lease, and that climate would admit now.

    ``differs`` states how the alternative differs from the rejected lease: it starts later, is
    shorter, has fewer resources, or differs in another way.
    """

    differs = fields.String(validate=validate.OneOf(["later", "shorter", "fewer", "other"]))
    start = Moment()
    end = Moment()
    amount = fields.Integer()


class Problem(Schema):
    """The body of an error answer (RFC 9457).

    All errors have the required fields. The error code in ``code`` determines which of the other
    fields are present.
    """

    class Meta:
        """Accept unknown fields, because plug-ins and later releases may add some."""

        unknown = INCLUDE

    type = fields.String(required=True)
    title = fields.String(required=True)
    status = fields.Integer(required=True)
    detail = fields.String(required=True)
    code = fields.String(required=True)
    errors = fields.List(fields.Nested(BadValue))
    etag = fields.String(metadata=described("The current ETag (precondition_failed)."))
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
    can_wait = fields.Boolean(
        metadata=described(
            "Whether the lease can wait for capacity, with the start asap and the field wait."
        )
    )
