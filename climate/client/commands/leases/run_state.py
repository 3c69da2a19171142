"""``reservation start`` and ``reservation stop``: for reservations with ``on_start: manual``."""

import argparse

from climate.client.commands.base import Failed, ShowOne
from climate.client.commands.display.leases import Fields, of_one
from climate.client.commands.leases.manage import add_lease
from climate.client.models import Lease, Reservation


class _SetRunState(ShowOne):
    """A command that starts or stops a reservation."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        add_lease(parser)
        parser.add_argument(
            "reservation",
            metavar="RESERVATION",
            nargs="?",
            help="id of the reservation; not needed if only one has on_start manual",
        )


class StartReservation(_SetRunState):
    """Create the resources of a reservation with on_start manual, while its lease runs."""

    def take_action(self, parsed_args: argparse.Namespace) -> Fields:
        """Start the reservation, and return its fields."""
        lease = self.client.leases.find(parsed_args.lease)
        id_ = _reservation_id(lease, parsed_args.reservation)
        return _fields(self.client.leases.start_reservation(lease.id, id_), parsed_args)


class StopReservation(_SetRunState):
    """Delete the resources of a reservation with on_start manual, and keep its capacity."""

    def take_action(self, parsed_args: argparse.Namespace) -> Fields:
        """Stop the reservation, and return its fields."""
        lease = self.client.leases.find(parsed_args.lease)
        id_ = _reservation_id(lease, parsed_args.reservation)
        return _fields(self.client.leases.stop_reservation(lease.id, id_), parsed_args)


def _reservation_id(lease: Lease, named: str | None) -> str:
    """Return ``named``, or the id of the only manual reservation. Raises Failed."""
    if named is not None:
        return named
    ids = [each.id for each in lease.reservations if each.run_state and each.status != "deleted"]
    if len(ids) != 1:
        known = ", ".join(ids) or "none"
        raise Failed(f"Name the reservation. With on_start manual, lease {lease.name} has: {known}")
    return ids[0]


def _fields(reservation: Reservation, parsed_args: argparse.Namespace) -> Fields:
    names = ("id", "resource_type", "status", "run_state")
    return of_one({name: getattr(reservation, name) for name in names}, parsed_args)
