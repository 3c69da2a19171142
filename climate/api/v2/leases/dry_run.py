"""Dry runs: climate checks a request to create or change a lease, but stores nothing."""

from dataclasses import replace

from marshmallow import Schema, fields

from climate.api.call import Answer, Call
from climate.api.v2.http.fields import Strict, flag
from climate.api.v2.http.schemas import described
from climate.api.v2.leases import limits
from climate.api.v2.leases.schemas import Lease
from climate.manager.admission.preview import Preview


class DryRunQuery(Strict):
    """The query parameter that requests a dry run: climate only checks the request."""

    dry_run = flag(
        load_default=False,
        metadata=described(
            "Only check the request, and store nothing. The response is 200, or the refusal."
        ),
    )


class NamedResource(Schema):
    """A resource, such as a host, with its id and name."""

    id = fields.String()
    name = fields.String(attribute="external_id")


class FreeCapacity(Schema):
    """How much capacity is free for a reservation during the whole window of the lease."""

    resource_type = fields.String()
    asked = fields.Integer(metadata=described("Required units."))
    free = fields.Integer(
        allow_none=True,
        metadata=described("Units that are free during the whole window; null: not counted."),
    )
    matching = fields.Integer(
        allow_none=True,
        metadata=described("Resources that match and are large enough; null: not counted."),
    )
    resources = fields.List(
        fields.Nested(NamedResource),
        metadata=described("Up to 200 of the resources that have a free unit, by id."),
    )


class DryRun(Schema):
    """The answer to a dry run, if climate would admit the request now.

    Nothing is stored or reserved. If climate would reject the request, the answer is the error.
    """

    admitted = fields.Boolean(metadata=described("Always true: a refusal is an error."))
    lease = fields.Nested(Lease, metadata=described("The ids are not those of a later lease."))
    reservations = fields.List(fields.Nested(FreeCapacity), metadata=described("In their order."))
    limits = fields.Nested(
        limits.Limits,
        allow_none=True,
        metadata=described("Your limits, and the usage afterwards; null: no limits apply."),
    )
    not_checked = fields.List(
        fields.String(),
        metadata=described(
            "What only the real request does: enforcement, trust, preparation in the cloud."
        ),
    )


DRY_RUN_QUERY, _DRY_RUN = DryRunQuery(), DryRun()


def answer(call: Call, preview: Preview) -> Answer:
    """Return the answer to a dry run with the result ``preview``.

    The answer names resources only if the policy ``resources:get`` allows the caller to read them.
    """
    reservations = preview.reservations
    if not call.may("resources:get"):
        reservations = [replace(capacity, resources=()) for capacity in reservations]
    accounts, settings = preview.accounts, call.runtime.settings.limits
    body = {
        "admitted": True,
        "lease": preview.lease,
        "reservations": reservations,
        "limits": None if accounts is None else limits.body(settings, accounts, is_limited=True),
        "not_checked": preview.not_checked,
    }
    return _DRY_RUN.dump(body), 200
