"""A lease that begins as soon as there is enough for it."""

from dataclasses import replace
from datetime import datetime, timedelta

from climate.core.errors import Contention, InvalidDate, NotEnoughResources
from climate.core.lease import Lease
from climate.core.once import Once
from climate.core.window import Window
from climate.manager.admission import availability
from climate.manager.leases import create as leases
from climate.manager.leases.drafts import LeaseRequest, Owner
from climate.manager.runtime import Runtime

# What was found may be gone when it is asked for; then the next is looked for.
_ATTEMPTS = 5


def create(
    runtime: Runtime,
    owner: Owner,
    request: LeaseRequest,
    length: timedelta,
    once: Once | None = None,
) -> Lease:
    """Admit a lease for ``length`` that begins as soon as it can and ends by ``request.end``.

    Raises what ``leases.create`` does.
    """
    if not request.reservations:
        start = request.start
        if length > request.end - start:
            if once is not None:  # when it was asked for first, it did
                leases.recall(runtime, once)
            raise InvalidDate("The duration must fit between start and end")
        return leases.create(runtime, owner, replace(request, end=start + length), once)
    for _ in range(_ATTEMPTS):
        found = _soonest(runtime, request, length)
        window = found or Window(request.start, request.start + length)
        there = replace(request, start=window.start, end=window.end)
        try:
            return leases.create(runtime, owner, there, once)
        except NotEnoughResources as refusal:
            if found is None:
                if once is not None:  # what was taken meanwhile may be its own
                    leases.recall(runtime, once)
                raise _never(request, length, refusal) from None
    raise Contention("What becomes free is taken by others at once: try again shortly")


def _soonest(runtime: Runtime, request: LeaseRequest, length: timedelta) -> Window | None:
    within = Window(request.start, request.end)
    found = availability.search(runtime, request.reservations, length, within, 1)
    return next((offer.window for offer in found), None)


def _never(
    request: LeaseRequest, length: timedelta, at_once: NotEnoughResources
) -> NotEnoughResources:
    """Return the refusal, explained by why the lease cannot begin ``at_once``."""
    return NotEnoughResources(
        f"Not enough resources for {length} in a row between {_text(request.start)} and"
        f" {_text(request.end)} UTC (cleaning time included). Now: {at_once.message}",
        at_once.details,
    )


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"
