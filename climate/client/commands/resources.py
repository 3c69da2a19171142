"""The commands of resources: list, show, register, remove, and what operators do with hosts."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from climate.client.commands.base import (
    ClimateCommand,
    Lister,
    Rows,
    ShowOne,
    add_limit,
    add_time,
    first,
)
from climate.client.commands.display.columns import (
    Structured,
    Time,
    mapping,
    names,
    optional,
    plain,
)
from climate.client.commands.display.leases import Fields, of_one
from climate.client.commands.options import times
from climate.client.commands.options.reservations import condition, parameters
from climate.client.models import Holder, HostReadiness, Resource
from climate.client.reservations import HOST

_STATES = ["ready", "preparing", "off", "set_aside", "failing"]


def add_resource(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names a resource."""
    parser.add_argument("resource", metavar="RESOURCE", help="name or id of the resource")


def add_where(parser: argparse.ArgumentParser) -> None:
    """Add the option that selects resources by their properties."""
    parser.add_argument(
        "--where",
        type=condition,
        metavar="CONDITION",
        help="only resources that match, such as 'vcpus>=64 and rack=r1'",
    )


class ListResources(Lister):
    """List the resources that can be reserved."""

    objects = "resources"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument("--type", metavar="TYPE", help="resources of this type")
        parser.add_argument("--name", metavar="PART", help="resources whose name has this part")
        parser.add_argument(
            "--state", action="append", choices=_STATES, help="in this state (repeatable)"
        )
        add_where(parser)
        parser.add_argument(
            "--bookings", action="store_true", help="add the present and the next lease (operators)"
        )
        parser.add_argument("--sort", default="id", help="id, name, -id or -name (default: id)")
        add_limit(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        """Return the rows of the table."""
        found = self.client.resources.list(
            resource_type=parsed_args.type,
            q=parsed_args.name or "",
            state=parsed_args.state or (),
            properties=parsed_args.where,
            bookings=parsed_args.bookings,
            sort=parsed_args.sort,
        )
        rows = [_row(each, parsed_args) for each in first(found, parsed_args)]
        extra = ("now", "next") if parsed_args.bookings else ()
        return ("id", "name", "resource_type", "state", "reservable", *extra), rows


def _row(resource: Resource, parsed_args: argparse.Namespace) -> Sequence[Any]:
    holders = (resource.now, resource.next) if parsed_args.bookings else ()
    return (
        *(resource.id, resource.name, resource.resource_type, resource.state, resource.reservable),
        *(_holder(each, parsed_args) for each in holders),
    )


def _holder(holder: Holder | None, parsed_args: argparse.Namespace) -> Structured:
    if holder is None:
        return Structured(None, "")
    start, end = (times.show(at, parsed_args.time_zone) for at in (holder.start, holder.end))
    return Structured(
        holder.to_dict(), f"{holder.lease_name} ({holder.project_id})\n{start} -\n{end}"
    )


class ShowResource(ShowOne):
    """Show a resource and its properties."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        add_resource(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Fields:
        """Return the fields."""
        return _resource(self.client.resources.find(parsed_args.resource), parsed_args)


def _add_properties(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--property",
        action="append",
        default=[],
        type=parameters,
        metavar="KEY=VALUE",
        help="a property of the resource, such as rack=r1 (repeatable)",
    )


def _properties(parsed_args: argparse.Namespace) -> dict[str, Any]:
    return {name: value for each in parsed_args.property for name, value in each.items()}


class RegisterResource(ShowOne):
    """Make a host, an address, a segment or a volume type reservable (administrators)."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument("name", metavar="NAME", help="name in the cloud")
        parser.add_argument("--type", metavar="TYPE", default=HOST, help=f"default: {HOST}")
        _add_properties(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Fields:
        """Register the resource, and return its fields."""
        properties = _properties(parsed_args)
        made = self.client.resources.register(parsed_args.type, parsed_args.name, properties)
        return _resource(made, parsed_args)


class SetResource(ShowOne):
    """Add, change or remove properties of a resource (administrators)."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        add_resource(parser)
        _add_properties(parser)
        parser.add_argument(
            "--remove",
            action="append",
            default=[],
            metavar="KEY",
            help="remove this property (repeatable)",
        )

    def take_action(self, parsed_args: argparse.Namespace) -> Fields:
        """Change the properties, and return the fields of the resource."""
        properties = {**dict.fromkeys(parsed_args.remove), **_properties(parsed_args)}
        resource = self.client.resources.find(parsed_args.resource)
        changed = self.client.resources.update(resource.id, properties)
        return _resource(changed, parsed_args)


def _resource(resource: Resource, parsed_args: argparse.Namespace) -> Fields:
    lines = "\n".join(f"{name}={value}" for name, value in sorted(resource.properties.items()))
    fields = {
        "id": resource.id,
        "name": resource.name,
        "resource_type": resource.resource_type,
        "state": resource.state,
        "reservable": resource.reservable,
        "power": mapping(resource.power) if resource.power else optional(None),
        "properties": Structured(resource.properties, lines),
        "created_at": Time(resource.created_at, parsed_args.time_zone),
        "updated_at": Time(resource.updated_at, parsed_args.time_zone),
    }
    return of_one(fields, parsed_args)


class RemoveResource(ClimateCommand):
    """Remove resources that no lease has or will have (administrators)."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument("resources", metavar="RESOURCE", nargs="+", help="name or id")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Remove the resources; first find all of them, so that a wrong name removes nothing."""
        found = [self.client.resources.find(name) for name in parsed_args.resources]
        for resource in found:
            self.client.resources.remove(resource.id)
            self.say(f"{resource.name} ({resource.id}) can no longer be reserved.")


class ListBookings(Lister):
    """List the bookings of a resource, from now on (operators)."""

    objects = "bookings"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        add_resource(parser)
        add_time(parser, "--start", "bookings that end later; default: now")
        add_time(parser, "--end", "bookings that start earlier")
        add_limit(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        """Return the rows of the table."""
        resource = self.client.resources.find(parsed_args.resource)
        window = self.times(parsed_args, "start", "end")
        found = self.client.resources.bookings(resource.id, **window)
        zone = parsed_args.time_zone
        rows = [
            (
                *(each.lease_id, each.lease_name, each.project_id, each.user_id, each.status),
                *(Time(at, zone) for at in (each.start, each.end, each.busy_until)),
                mapping(each.amounts),
            )
            for each in first(found, parsed_args)
        ]
        header = ("lease_id", "lease_name", "project_id", "user_id", "status", "start", "end")
        return (*header, "busy_until", "amounts"), rows


class ListResourceTypes(Lister):
    """List the resource types that can be reserved, and the parameters of their reservations."""

    objects = "resource types"

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:  # noqa: ARG002 - cliff's
        """Return the rows of the table."""
        rows = []
        for each in self.client.resources.types():
            keys = [
                n for n, v in each.schema.get("properties", {}).items() if not v.get("readOnly")
            ]
            required = each.schema.get("required", [])
            lines = ", ".join(f"{key}*" if key in required else key for key in keys)
            rows.append((each.name, each.title, Structured(each.schema, lines)))
        return ("name", "title", "parameters"), rows


class ListProperties(Lister):
    """List the properties that select resources of a type, with some values."""

    objects = "properties"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument("--type", metavar="TYPE", default=HOST, help=f"default: {HOST}")

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        """Return the rows of the table."""
        found = self.client.resources.properties(parsed_args.type)
        rows = [(each.name, names(each.values), each.private) for each in found]
        return ("name", "values", "private"), rows


class ShowHostReadiness(ShowOne):
    """Show whether a host is ready for its next lease (operators)."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        add_resource(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Fields:
        """Return the fields."""
        resource = self.client.resources.find(parsed_args.resource)
        return _readiness(self.client.resources.readiness(resource.id), parsed_args)


class SetAsideResource(ShowOne):
    """Put a host in quarantine, or end its quarantine (operators)."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        add_resource(parser)
        reason = parser.add_mutually_exclusive_group(required=True)
        reason.add_argument("--reason", help="why, such as 'disk failure'")
        reason.add_argument("--end", action="store_true", help="end the quarantine")

    def take_action(self, parsed_args: argparse.Namespace) -> Fields:
        """Change the quarantine, and return the fields."""
        resource = self.client.resources.find(parsed_args.resource)
        reason = None if parsed_args.end else parsed_args.reason
        return _readiness(self.client.resources.set_aside(resource.id, reason), parsed_args)


def _readiness(found: HostReadiness, parsed_args: argparse.Namespace) -> Fields:
    zone = parsed_args.time_zone
    lead = found.lead
    fields = {
        "resource_id": found.resource_id,
        "name": found.name,
        "hardware": found.hardware,
        "state": optional(found.state),
        "up": optional(found.up),
        "set_aside": optional(found.set_aside),
        "set_aside_at": Time(found.set_aside_at, zone),
        "seen_at": Time(found.seen_at, zone),
        "ready_at": Time(found.ready_at, zone),
        "early": optional(found.early),
        "lead": optional(None) if lead is None else mapping(lead.to_dict()),
        "times": Structured(found.times, _seconds(found.times)),
    }
    return of_one(fields, parsed_args)


def _seconds(values: Iterable[float]) -> str:
    return ", ".join(plain(round(value, 1)) for value in values)
