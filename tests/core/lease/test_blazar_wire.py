import dataclasses
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from climate.core.lease import blazar_wire
from climate.core.lease.lifecycle import EventStatus, LeaseStatus, ReservationStatus
from climate.core.lease.model import Event, Lease, Reservation
from climate.core.window import Window
from tests.support.cases import each_case

moments = st.datetimes(timezones=st.just(UTC))


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


MADE = moment("2049-12-31 00:00:30.250000")
EVENT = Event(
    id="event-1",
    lease_id="lease-1",
    kind="start_lease",
    due_at=moment("2050-01-01 00:00:00"),
    status=EventStatus.UNDONE,
    attempt=3,
    last_error="the cloud was away",
    created_at=MADE,
    updated_at=None,
)
RESERVATION = Reservation(
    id="reservation-1",
    lease_id="lease-1",
    resource_type="physical:host",
    status=ReservationStatus.PENDING,
    params={"min": 1, "max": 2, "resource_properties": ""},
    details={"aggregate_id": 4},
    created_at=MADE,
    updated_at=moment("2049-12-31 00:00:31"),
)
LEASE = Lease(
    id="lease-1",
    name="x",
    user_id="user-1",
    project_id="project-1",
    window=Window(moment("2050-01-01 00:00:00"), moment("2050-01-01 02:00:00")),
    status=LeaseStatus.PENDING,
    degraded=False,
    notices=(),
    reservations=(RESERVATION,),
    events=(EVENT,),
    created_at=MADE,
    updated_at=None,
)


def holding(params: Mapping[str, Any]) -> Reservation:
    return dataclasses.replace(RESERVATION, params=params)


class TestDate:
    def test_has_microseconds_and_no_zone(self) -> None:
        assert blazar_wire.date(moment("2049-12-31 00:00:00")) == "2049-12-31T00:00:00.000000"

    @each_case(
        "text, date",
        [
            ("0001-01-01 00:00:00", "0001-01-01T00:00:00.000000"),
            ("0999-12-31 23:59:00", "0999-12-31T23:59:00.000000"),
            ("9999-12-31 23:59:59.999999", "9999-12-31T23:59:59.999999"),
        ],
    )
    def test_every_year_has_four_digits(self, text: str, date: str) -> None:
        assert blazar_wire.date(moment(text)) == date

    @given(moments)
    def test_clients_parse_it_with_their_fixed_format(self, when: datetime) -> None:
        read = datetime.strptime(blazar_wire.date(when), "%Y-%m-%dT%H:%M:%S.%f")  # noqa: DTZ007
        assert read.replace(tzinfo=UTC) == when


class TestStamp:
    def test_has_a_space_and_whole_seconds(self) -> None:
        assert blazar_wire.stamp(MADE) == "2049-12-31 00:00:30"

    def test_no_time_is_null(self) -> None:
        assert blazar_wire.stamp(None) is None

    @given(moments)
    def test_has_the_same_length_in_every_year(self, when: datetime) -> None:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", str(blazar_wire.stamp(when)))


class TestBodies:
    def test_a_lease_has_blazars_keys_and_values(self) -> None:
        body = blazar_wire.lease_body(LEASE)
        assert (body.pop("reservations"), body.pop("events")) == (
            [blazar_wire.reservation_body(RESERVATION)],
            [blazar_wire.event_body(EVENT)],
        )
        assert body == {
            "id": "lease-1",
            "name": "x",
            "user_id": "user-1",
            "project_id": "project-1",
            "start_date": "2050-01-01T00:00:00.000000",
            "end_date": "2050-01-01T02:00:00.000000",
            "trust_id": None,
            "status": "PENDING",
            "degraded": False,
            "created_at": "2049-12-31 00:00:30",
            "updated_at": None,
        }

    def test_a_reservation_has_common_keys_params_and_details(self) -> None:
        assert blazar_wire.reservation_body(RESERVATION) == {
            "id": "reservation-1",
            "lease_id": "lease-1",
            "resource_id": "reservation-1",
            "resource_type": "physical:host",
            "status": "pending",
            "missing_resources": False,
            "resources_changed": False,
            "min": 1,
            "max": 2,
            "resource_properties": "",
            "aggregate_id": 4,
            "created_at": "2049-12-31 00:00:30",
            "updated_at": "2049-12-31 00:00:31",
        }

    @each_case("key", ["id", "lease_id", "status", "resource_type"])
    def test_a_parameter_cannot_replace_a_common_key(self, key: str) -> None:
        assert blazar_wire.reservation_body(holding({key: "forged"}))[key] != "forged"

    def test_an_event_has_its_kind_time_and_status(self) -> None:
        assert blazar_wire.event_body(EVENT) == {
            "id": "event-1",
            "lease_id": "lease-1",
            "event_type": "start_lease",
            "time": "2050-01-01T00:00:00.000000",
            "status": "UNDONE",
            "created_at": "2049-12-31 00:00:30",
            "updated_at": None,
        }

    def test_reservations_and_events_keep_their_order(self) -> None:
        two = [dataclasses.replace(RESERVATION, id=id_) for id_ in ("b", "a")]
        due = [dataclasses.replace(EVENT, id=id_) for id_ in ("d", "c")]
        body = blazar_wire.lease_body(
            dataclasses.replace(LEASE, reservations=tuple(two), events=tuple(due))
        )
        assert [item["id"] for item in body["reservations"]] == ["b", "a"]
        assert [item["id"] for item in body["events"]] == ["d", "c"]

    def test_the_body_is_json(self) -> None:
        assert json.loads(json.dumps(blazar_wire.lease_body(LEASE))) == blazar_wire.lease_body(
            LEASE
        )


class TestPayload:
    def test_is_the_body_with_a_lease_id(self) -> None:
        body = blazar_wire.lease_body(LEASE)
        assert blazar_wire.payload(LEASE) == {"lease_id": body.pop("id"), **body}

    def test_an_event_may_add_keys(self) -> None:
        assert blazar_wire.payload(LEASE, {"starts_in": 60.0})["starts_in"] == 60.0
