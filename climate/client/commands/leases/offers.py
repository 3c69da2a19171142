"""The commands of offers, which hold capacity for some minutes."""

import argparse

from climate.client.commands.base import (
    ClimateCommand,
    Lister,
    Rows,
    ShowOne,
    add_all_projects,
    add_limit,
    first,
)
from climate.client.commands.display import columns, leases
from climate.client.commands.display.columns import Time, names
from climate.client.commands.display.leases import Fields
from climate.client.commands.leases.create import TIMES, RequestCommand, say_taken
from climate.client.commands.options import times
from climate.client.errors import NotEnoughResources
from climate.client.leases import LeaseOptions, Offer


def _add_offer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("offer", metavar="OFFER", help="id of the offer")


class CreateOffer(RequestCommand):
    """Hold the resources of a lease for some minutes, until the offer is accepted."""

    notes = TIMES

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        self.add_request(parser)
        parser.add_argument(
            "--hold",
            type=times.duration,
            metavar="DURATION",
            help="how long, such as 2m; default: the longest time that the service allows",
        )

    def take_action(self, parsed_args: argparse.Namespace) -> Fields:
        """Create the offer, and return its fields."""
        offer = self._create(parsed_args, self.options(parsed_args))
        self.say(f"To have it as a lease: climate offer accept {offer.id}")
        return _shown(offer, parsed_args)

    def _create(self, parsed_args: argparse.Namespace, options: LeaseOptions) -> Offer:
        number: int | None = parsed_args.take
        more = {"hold": parsed_args.hold, "idempotency_key": parsed_args.idempotency_key}
        try:
            return self.client.offers.create(parsed_args.name, **more, **options)
        except NotEnoughResources as refusal:
            if number is None:
                raise
            offer = self.client.offers.take(refusal, number, **more)
            say_taken(self, refusal, number, parsed_args)
            return offer


class ListOffers(Lister):
    """List the open offers of the project."""

    objects = "open offers"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        add_all_projects(parser)
        add_limit(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        """Return the rows of the table."""
        zone = parsed_args.time_zone
        found = self.client.offers.list(all_projects=parsed_args.all_projects)
        extra = ("project_id", "user_id") if parsed_args.all_projects else ()
        rows = [
            (
                offer.id,
                offer.name,
                Time(offer.expires_at, zone),
                Time(offer.start, zone),
                Time(offer.end, zone),
                names([columns.amount(each) for each in offer.reservations]),
                *(getattr(offer, name) for name in extra),
            )
            for offer in first(found, parsed_args)
        ]
        return ("id", "name", "expires_at", "start", "end", "reservations", *extra), rows


class ShowOffer(ShowOne):
    """Show an open offer."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        _add_offer(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Fields:
        """Return the fields of the offer."""
        return _shown(self.client.offers.get(parsed_args.offer), parsed_args)


class AcceptOffer(ShowOne):
    """Accept an offer: it becomes a lease with the same id."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        _add_offer(parser)
        parser.add_argument("--name", help="name of the lease; default: that of the offer")

    def take_action(self, parsed_args: argparse.Namespace) -> Fields:
        """Accept the offer, and return the fields of the lease."""
        lease = self.client.offers.accept(parsed_args.offer, name=parsed_args.name)
        return leases.shown(self.client, lease, parsed_args)


class DeleteOffer(ClimateCommand):
    """Delete offers; their capacity is free at once."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument("offers", metavar="OFFER", nargs="+", help="id of an offer")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Delete the offers."""
        for offer_id in parsed_args.offers:
            self.client.offers.delete(offer_id)
            self.say(f"Offer {offer_id} is deleted.")


def _shown(offer: Offer, parsed_args: argparse.Namespace) -> Fields:
    zone = parsed_args.time_zone
    fields = {
        "id": offer.id,
        "name": offer.name,
        "expires_at": Time(offer.expires_at, zone),
        "start": Time(offer.start, zone),
        "end": Time(offer.end, zone),
        "reservations": columns.reservations(offer),
        "start_when": offer.start_when,
        "project_id": offer.project_id,
        "user_id": offer.user_id,
        "created_at": Time(offer.created_at, zone),
    }
    return leases.of_one(fields, parsed_args)
