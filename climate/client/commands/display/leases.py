"""The fields of leases and of dry runs."""

import argparse
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from cliff.columns import FormattableColumn

from climate.client import Client
from climate.client.commands.display import columns
from climate.client.commands.display.columns import Structured, Time, names, optional
from climate.client.commands.options.times import Zone
from climate.client.models import DryRun, FreeCapacity, Lease, LeaseResource, Limits

Fields = tuple[Sequence[str], Sequence[Any]]
# Fields and their usual values. A table shows such a field only if the user requests the field, or
# if the lease has another value.
_ASIDE = {"etag": None, "start_when": "scheduled", "degraded": False, "all_projects": False}
_RESOURCE = ("id", "name", "resource_type", "state", "handed_over", "reservation_id")


def shown(client: Client, lease: Lease, parsed_args: argparse.Namespace) -> Fields:
    """Return the fields of a lease, with the resources that it has or will have."""
    zone: Zone = parsed_args.time_zone
    resources = list(client.leases.resources(lease.id))
    fields = {
        **_summary(lease, zone),
        "resources": _resources(resources),
        "reservations": columns.reservations(lease),
        "events": columns.events(lease, zone),
        "waiting": _waiting(lease, zone),
        "start_when": lease.start_when,
        **{
            name: Time(getattr(lease, name), zone)
            for name in ("ready_at", "start_delayed_at", "started_at")
        },
        "degraded": lease.degraded,
        "trust_lost": optional(lease.trust_lost),
        "project_id": lease.project_id,
        "user_id": lease.user_id,
        "created_at": Time(lease.created_at, zone),
        "updated_at": Time(lease.updated_at, zone),
        "etag": lease.etag,
    }
    return of_one(fields, parsed_args)


def dry_run(found: DryRun, parsed_args: argparse.Namespace) -> Fields:
    """Return the fields of a request that climate would admit."""
    summary = _summary(found.lease, parsed_args.time_zone)
    capacity = [_free(each) for each in found.reservations]
    values = found.to_dict()
    fields = {
        "admitted": found.admitted,
        **{name: value for name, value in summary.items() if name not in {"id", "status"}},
        "reservations": Structured(values["reservations"], "\n".join(capacity)),
        "limits": Structured(values["limits"], _limits(found.limits)),
        "not_checked": names(found.not_checked),
    }
    return of_one(fields, parsed_args)


def of_one(fields: dict[str, Any], parsed_args: argparse.Namespace) -> Fields:
    """Return the fields of an object. A table without chosen columns omits empty fields."""
    is_table = parsed_args.formatter == "table" and not parsed_args.columns
    kept = {k: v for k, v in fields.items() if not (is_table and _is_needless(k, v))}
    return tuple(kept), tuple(kept.values())


def _summary(lease: Lease, zone: Zone) -> dict[str, Any]:
    return {
        "id": lease.id,
        "name": lease.name,
        "status": lease.status,
        "start": planned(lease, lease.start, zone),
        "end": planned(lease, lease.end, zone),
    }


def planned(lease: Lease, moment: datetime, zone: Zone) -> FormattableColumn[Any]:
    """Return the start or the end of a lease. In tables, those of a waiting lease are empty."""
    time = Time(moment, zone)
    return Structured(time.machine_readable(), "") if lease.status == "WAITING" else time


def position(lease: Lease) -> Structured:
    """Return the place of a lease in the wait list; in tables, only its position."""
    place = lease.waiting
    return Structured(msgspec.to_builtins(place), f"position {place.position}" if place else "")


def _waiting(lease: Lease, zone: Zone) -> Structured:
    place = lease.waiting
    if place is None:
        return Structured(None, "")
    moments: dict[str, datetime | None] = {"promised start": place.promised_start}
    if place.promised_start is None:
        moments = {"expected start": place.expected_start, "until": place.until}
    known = {name: moment for name, moment in moments.items() if moment is not None}
    texts = [f"{name} {Time(moment, zone).human_readable()}" for name, moment in known.items()]
    held_back = [f"held back: {place.held_back}"] if place.held_back else []
    lines = [f"position {place.position}", *texts, *held_back]
    return Structured(msgspec.to_builtins(place), "\n".join(lines))


def _resources(resources: Sequence[LeaseResource]) -> Structured:
    values = [{name: getattr(each, name) for name in _RESOURCE} for each in resources]
    return Structured(values, ", ".join(each.name for each in resources))


def _free(capacity: FreeCapacity) -> str:
    if capacity.free is None:
        return f"{capacity.asked} {capacity.resource_type}"
    return (
        f"{capacity.asked} {capacity.resource_type}: {capacity.free} free,"
        f" {capacity.matching} match"
    )


def _limits(limits: Limits | None) -> str:
    if limits is None:
        return ""
    return "\n".join(
        f"{name} of {party.scope} {party.id}: {party.used[name]:g} of {limit}"
        for party in limits.parties
        for name, limit in party.limits.items()
        if limit is not None and name in party.used
    )


def _is_needless(name: str, value: Any) -> bool:  # noqa: ANN401 - any field
    text = value.human_readable() if isinstance(value, FormattableColumn) else value
    return text is None or text == "" or (name in _ASIDE and _ASIDE[name] in {None, text})
