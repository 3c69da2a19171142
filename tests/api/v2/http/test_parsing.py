"""Parsing of query strings and bodies, without a service: what is rejected, and where it is."""

import base64
import difflib
import json
from typing import Any

import pytest
from flask import Flask
from marshmallow import Schema

from climate.api.v2.capacity import schemas as capacity_schemas
from climate.api.v2.capacity.schemas import WINDOW_SEARCH
from climate.api.v2.http import paging, validation
from climate.api.v2.leases import schemas
from climate.api.v2.leases import schemas as lease_schemas
from climate.api.v2.notifications import schemas as notification_schemas
from climate.api.v2.provisioning.schemas import REPORT
from climate.api.v2.resources import schemas as resource_schemas
from climate.api.v2.resources.schemas import RESOURCE_REQUEST
from climate.core.errors import InvalidInput
from tests.support.receiver import SECRET

APP = Flask("test")
RESERVATION = {"resource_type": "a"}
INSTANT = "2030-01-15T12:00:00+00:00"


def rejected_query(schema: Schema, query: str, *, numbered: bool = False) -> list[str]:
    def parse() -> None:
        data = validation.query(schema)
        if "sort" in data:
            paging.page(data, numbered=numbered)

    with APP.test_request_context(f"/?{query}"), pytest.raises(InvalidInput) as error:
        parse()
    return [item["parameter"] for item in error.value.details["errors"]]


def rejected_body(schema: Schema, body: dict[str, Any]) -> InvalidInput:
    with pytest.raises(InvalidInput) as error:
        validation.load(schema, body)
    return error.value


def pointers(error: InvalidInput) -> set[str]:
    return {item["pointer"] for item in error.details["errors"]}


def lease(**fields: Any) -> dict[str, Any]:
    dates = {"start": "2030-01-15T13:00:00Z", "end": "2030-01-15T14:00:00Z"}
    return {"name": "x", **dates, "reservations": [RESERVATION], **fields}


def marker(*parts: Any) -> str:
    packed = base64.urlsafe_b64encode(json.dumps(parts).encode())
    return f"marker={packed.decode().rstrip('=')}"


def test_rejects_malformed_queries_of_leases() -> None:
    for query in [
        *("limit=0", "limit=1001", "limit=x", "limit=-1", "limit=", "limit=%D9%A3", "limit=1_0"),
        *("limit=1&limit=2", "sort=", "sort=id", "sort=--start", "sort=start,end"),
        *("status=active", "status=", "starts_before=2030-01-15", "ends_after=now"),
        *("starts_after=2030-01-15T12:00:00", "all_projects=maybe", "unknown=1", "name=a&name=b"),
        *("marker=", "marker=x", "marker=%C3%A9", "marker=AAAA", "marker=bnVsbA", "marker=e30"),
        marker("start", INSTANT, "x"),  # for another order
        marker("-start", "x", "x"),
        marker("-start", 5, "x"),
        marker("-start", "0001-01-01T00:00:00+23:00", "x"),
        marker("-start", INSTANT, 5),
        marker("-start", INSTANT, "a\x00b"),
        marker("-start", INSTANT, "\ud800"),
        marker("-start", INSTANT),
        marker("-start", None, None),
        marker("-start", [], {}),
    ]:
        assert rejected_query(lease_schemas.LEASE_QUERY, query) == [query.partition("=")[0]]
    for value in (chr(0), ["a"]):
        query = f"sort=name&{marker('name', value, 'x')}"
        assert rejected_query(lease_schemas.LEASE_QUERY, query) == ["marker"]


def test_rejects_malformed_queries_of_resources_and_notifications() -> None:
    for number in (-1, 2**63, 2**80, "1", None, True, 1.5):
        for query in (marker("id", number, number), f"sort=name&{marker('name', 'sim-1', number)}"):
            rejected = rejected_query(resource_schemas.RESOURCE_QUERY, query, numbered=True)
            assert rejected == ["marker"]
    for query in ("sort=type", "state=broken", f"q={'x' * 256}", "bookings=maybe"):
        parameter = query.partition("=")[0]
        assert rejected_query(resource_schemas.RESOURCE_QUERY, query) == [parameter]
    for query in ("wait=61", "wait=-1", "event_type=a*b", "event_type=", "after=x", "what=1"):
        parameter = query.partition("=")[0]
        assert rejected_query(notification_schemas.NOTIFICATION_QUERY, query) == [parameter]
    assert rejected_query(notification_schemas.STREAM_QUERY, "wait=1") == ["wait"]
    assert rejected_query(capacity_schemas.AVAILABILITY_QUERY, "resource_type=physical:host") == [
        "end"
    ]


NOT_A_TIME = "not a date and time"


def test_rejects_times_that_are_not_an_instant_to_the_second() -> None:
    for time, reason in [
        ("2030-01-15T13:00:00 01:00", "%2B"),
        *(("2030-01-15T13:00:00", "no zone"), ("2030-01-15T13:00", "no zone")),
        *(("2030-01-15", NOT_A_TIME), ("tomorrow", NOT_A_TIME), ("", NOT_A_TIME)),
        *((None, "null"), (1894712400, NOT_A_TIME), (["2030-01-15T13:00:00Z"], NOT_A_TIME)),
        *(("20300115T130000Z", NOT_A_TIME), ("2030-W03-2T13:00:00Z", NOT_A_TIME)),
        *(("2030-01-15T13:00:00 Z", NOT_A_TIME), ("٢٠٣٠-01-15T13:00:00Z", NOT_A_TIME)),
        *(("2030-01-15T13:00:00.5Z", "fractions"), ("2030-01-15T13:00:00,000001Z", "fractions")),
        *(("2030-02-30T13:00:00Z", "no such"), ("2030-01-15T13:00:60Z", "no such")),
        *(("2030-01-15T13:00:00+24:00", "no such"), ("2030-01-15T13:00:00+01:99", NOT_A_TIME)),
        *(("0001-01-01T00:00:00+01:00", "no such"), ("9999-12-31T23:59:59-01:00", "no such")),
        ("0000-01-01T00:00:00Z", "no such"),
    ]:
        for name in ("start", "end", "before_end"):
            error = rejected_body(schemas.LEASE_REQUEST, lease(**{name: time}))
            assert pointers(error) == {f"#/{name}"}
            assert reason in error.message
            assert error.code == ("invalid_date" if time is not None else "invalid_input")


def test_reads_every_form_of_an_instant() -> None:
    for time in [
        *("2030-01-15T13:00:00Z", "2030-01-15T13:00Z", "2030-01-15t13:00:00z"),
        *("2030-01-15 13:00:00+00:00", "2030-01-15T13:00:00.000Z", "2030-01-15T14:00:00+0100"),
        "2030-01-16T12:59:00+23:59",
    ]:
        loaded = validation.load(schemas.LEASE_REQUEST, lease(start=time))
        assert loaded["start"].isoformat() == "2030-01-15T13:00:00+00:00"


def test_names_every_bad_value_of_a_lease_with_its_place() -> None:
    cases: list[tuple[dict[str, Any], str, str | None]] = [
        ({"nmae": "x"}, "#/nmae", "name"),
        ({"status": "ACTIVE"}, "#/status", "start"),
        ({"a/b~c": 1}, "#/a~1b~0c", None),
        (
            {"reservations": [{"resource_type": "a", "parms": {}}]},
            "#/reservations/0/parms",
            "params",
        ),
        ({"events": [{"type": "a", "at": "2030-01-15T13:00:00Z", "x": 1}]}, "#/events/0/x", None),
    ]
    for fields, place, similar in cases:
        text = f"This key is unknown.{f' Did you mean {similar}?' if similar else ''}"
        error = rejected_body(schemas.LEASE_REQUEST, lease(**fields))
        assert error.code == "invalid_input"
        assert error.details["errors"] == [{"pointer": place, "detail": text}]
    error = rejected_body(
        schemas.LEASE_REQUEST,
        {"nmae": "x", "start": "2030", "reservations": [{"params": []}], "events": 1},
    )
    assert error.code == "invalid_input"
    assert error.message.endswith("(6 more in errors)")
    assert pointers(error) == {
        *("#/nmae", "#/name", "#/start", "#/end", "#/events"),
        *("#/reservations/0/params", "#/reservations/0/resource_type"),
    }
    error = rejected_body(schemas.LEASE_REQUEST, {})
    assert error.code == "missing_parameter"
    assert pointers(error) == {"#/name", "#/start", "#/end", "#/reservations"}
    error = rejected_body(schemas.LEASE_REQUEST, lease(reservations=[]))
    assert error.message == "reservations: A lease has 1 to 100 reservations."
    many = {f"key{number}": 1 for number in range(1_000)}
    error = rejected_body(schemas.LEASE_REQUEST, lease(**many))
    assert len(error.details["errors"]) == 100
    assert "(999 more" in error.message


def test_searches_similar_names_only_for_keys_that_the_answer_lists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[str] = []

    def search(key: str, known: list[str], n: int) -> list[str]:
        searched.append(key)
        return []

    monkeypatch.setattr(difflib, "get_close_matches", search)
    rejected_body(schemas.LEASE_REQUEST, lease(**{f"key{number}": 1 for number in range(1_000)}))
    assert len(searched) == 100


def test_rejects_an_earliest_start_with_a_date_that_depends_on_it() -> None:
    asap = {
        "name": "x",
        "start": "asap",
        "duration": 1800,
        "end_by": "2030-01-15T18:00:00Z",
        "reservations": [RESERVATION],
    }
    validation.load(schemas.LEASE_REQUEST, asap)
    time = "2030-01-15T13:00:00Z"
    cases: list[tuple[dict[str, Any], str]] = [
        ({"end": time}, "#/end"),
        ({"start": "now"}, "#/end_by"),
        ({"events": [{"type": "mine", "at": time}]}, "#/start"),
        ({"before_end": time}, "#/start"),
        ({"duration": 0}, "#/duration"),
        ({"start_when": "soon"}, "#/start_when"),
    ]
    for fields, place in cases:
        assert place in pointers(rejected_body(schemas.LEASE_REQUEST, {**asap, **fields}))
    for name in ("duration", "end_by"):
        rejected_body(schemas.LEASE_REQUEST, {k: v for k, v in asap.items() if k != name})


def test_rejects_malformed_changes_of_a_lease() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"reservations": [{"params": {}}]}, "#/reservations/0/id"),
        ({"reservations": [{"id": "x"}]}, "#/reservations/0/params"),
        ({"name": None}, "#/name"),
        ({"status": "ACTIVE"}, "#/status"),
        ({"start": "yesterday"}, "#/start"),
    ]
    for change, place in cases:
        assert pointers(rejected_body(schemas.LEASE_CHANGE, {"name": "new", **change})) == {place}
    larger, smaller = ({"id": "one", "params": {"max": most}} for most in (2, 1))
    for change in (
        {"reservations": [larger, smaller]},
        {"remove_reservations": ["one", "one"]},
        {"reservations": [larger], "remove_reservations": ["one"]},
    ):
        error = rejected_body(schemas.LEASE_CHANGE, change)
        assert "Reservation one is named more than once" in error.message


def test_rejects_malformed_subscriptions() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"url": 1}, "#/url"),
        ({"secret": "weak"}, "#/secret"),
        ({"event_types": ["lease.strat"]}, "#/event_types/0"),
        ({"event_types": ["lease.create"] * 21}, "#/event_types"),
        ({"after": -1}, "#/after"),
        ({"after": 2**63}, "#/after"),
        ({"all_projects": "yes"}, "#/all_projects"),
        ({"lease_id": ""}, "#/lease_id"),
        ({"status": "suspended"}, "#/status"),
        ({"resource_type": 5}, "#/resource_type"),
    ]
    for fields, place in cases:
        body = {"url": "https://example.org/hook", "secret": SECRET, **fields}
        error = rejected_body(notification_schemas.SUBSCRIPTION_REQUEST, body)
        assert pointers(error) == {place}


def test_rejects_malformed_reports_searches_and_registrations() -> None:
    reports: list[dict[str, Any]] = [
        {},
        {"state": "over", "owner": "p1"},
        {"state": "failed", "owner": "p1"},
        {"state": "accepted", "owner": ""},
        {"state": "accepted", "owner": "p1", "claim_seconds": 0},
        {"state": "ready", "owner": "p1", "seconds": {"boot": -1}},
        {"state": "ready", "owner": "p1", "seconds": {"boot": "long"}},
    ]
    for body in reports:
        rejected_body(REPORT, body)
    requested = {"reservations": [{"resource_type": "a"}], "duration": 60, "end_by": INSTANT}
    validation.load(WINDOW_SEARCH, requested)
    changes: list[dict[str, Any]] = [
        *({"duration": 0}, {"duration": "1"}, {"reservations": []}),
        *({"limit": 21}, {"unknown": 1}),
    ]
    for change in changes:
        error = rejected_body(WINDOW_SEARCH, {**requested, **change})
        assert (error.code, pointers(error)) == ("invalid_input", {f"#/{next(iter(change))}"})
    volume = {"resource_type": "virtual:volume"}
    cases: list[tuple[dict[str, Any], str]] = [
        ({**volume, "name": ""}, "#/name"),
        (volume, "#/name"),
        ({**volume, "name": "gold", "inventories": {}}, "#/inventories"),
    ]
    for body, place in cases:
        assert pointers(rejected_body(RESOURCE_REQUEST, body)) == {place}
