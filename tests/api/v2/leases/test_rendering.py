"""Rendered leases are equal to what the schema of the OpenAPI document describes."""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from climate.api.v2.leases import rendering, schemas
from climate.core.lease.lifecycle import EventStatus, LeaseStatus, ReservationStatus
from climate.core.lease.model import HANDED_OVER, Event, Lease, Reservation, Start, StartWhen
from climate.core.lease.wait_list import HeldBack, Wait
from climate.core.window import Window
from climate.manager.wait_list.waiting import Place

NOON = datetime(2030, 1, 15, 12, tzinfo=UTC)
NEW = Lease(
    id="lease",
    name="Grüße",
    user_id="alice",
    project_id="lab",
    window=Window(NOON, NOON + timedelta(hours=1)),
    status=LeaseStatus.PENDING,
    degraded=False,
    notices=(),
    reservations=(
        Reservation(
            id="reservation",
            lease_id="lease",
            resource_type="virtual:instance",
            status=ReservationStatus.PENDING,
            params={"amount": 1, "template": "secret", "server": {"key": "k", "user_data": "d"}},
            created_at=NOON,
            updated_at=None,
        ),
    ),
    events=(Event(id="event", lease_id="lease", kind="start_lease", due_at=NOON, created_at=NOON),),
    created_at=NOON - timedelta(microseconds=1),
    updated_at=None,
)
STARTED = replace(
    NEW,
    status=LeaseStatus.ACTIVE,
    trust_lost="The trust is gone.",
    reservations=(
        replace(
            NEW.reservations[0],
            status=ReservationStatus.ACTIVE,
            details={"flavor_id": "f", HANDED_OVER: [1, 2]},
            missing_resources=True,
            resources_changed=True,
            updated_at=NOON,
        ),
    ),
    events=(replace(NEW.events[0], status=EventStatus.DONE),),
    updated_at=NOON.astimezone(timezone(timedelta(hours=2))),
    start=Start(when=StartWhen.READY, ready_at=NOON, delayed_at=NOON, started_at=NOON),
)


PLACE = Place(
    wait=Wait(
        lease_id="lease",
        project_id="lab",
        user_id="alice",
        pool="physical:host",
        shape="",
        rank_at=NOON,
        priority=3,
        asked_at=NOON,
        length=timedelta(hours=1),
        earliest=NOON,
        end_by=NOON + timedelta(days=1),
        until=NOON + timedelta(hours=1),
        held_back=HeldBack.LIMIT,
    ),
    position=2,
    expected_start=NOON,
)


@dataclass
class Shown:
    """A lease with its place in the wait list, as the schema describes it."""

    lease: Lease
    waiting: Place | None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lease, name)


def test_rendered_leases_are_equal_to_those_of_the_schema() -> None:
    for lease, place in [(NEW, None), (NEW, PLACE), (STARTED, None)]:
        rendered = rendering.lease_body(lease, place)
        described = schemas.Lease().dump(Shown(lease, place))
        assert json.dumps(rendered) == json.dumps(described)
