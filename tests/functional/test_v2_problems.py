"""Every refusal of v2 is a problem (RFC 9457) that says what is wrong, and where."""

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from climate.core.errors import ClimateError
from climate.manager import leases
from tests.support.service import Story, hosts, problem

LEASES = "/v2/leases"


def refused(story: Story, **fields: Any) -> dict[str, Any]:
    """Send a lease that is refused for these fields, and leaves no lease behind."""
    found = story.problem(400, "POST", LEASES, {**story.asking(), **fields})
    assert story.ok("GET", LEASES)["leases"] == []
    return found


def places(found: dict[str, Any]) -> set[str]:
    return {one["pointer"] for one in found["errors"]}


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"nmae": "x"}, "#/nmae"),
        ({"status": "ACTIVE"}, "#/status"),
        ({"a/b~c": 1}, "#/a~1b~0c"),
        ({"reservations": [{**hosts(), "min": 1}]}, "#/reservations/0/min"),
        ({"reservations": [hosts(), hosts(mox=2)]}, "#/reservations/1/params/mox"),
        ({"events": [{"type": "a", "at": "2030-01-15T13:00:00Z", "x": 1}]}, "#/events/0/x"),
    ],
)
def test_an_unknown_key_is_refused_with_its_name(
    story: Story, fields: dict[str, Any], pointer: str
) -> None:
    found = refused(story, **fields)
    assert found["code"] == "invalid_input"
    assert found["errors"] == [{"pointer": pointer, "detail": "This is not known here."}]


def test_what_would_not_happen_is_refused_in_a_query_string_as_well(story: Story) -> None:
    lease = story.ok("POST", LEASES, story.asking())
    one = f"{LEASES}/{lease['id']}"
    for method, path, body in (
        ("POST", LEASES, story.asking()),
        ("PATCH", one, {"name": "other"}),
        ("DELETE", one, None),
    ):
        found = story.problem(400, method, f"{path}?dry_run=true", body)
        assert [place["parameter"] for place in found["errors"]] == ["dry_run"]
    assert story.ok("GET", LEASES)["leases"] == [lease]


@pytest.mark.parametrize(
    ("time", "reason"),
    [
        ("2030-01-15T13:00:00", "no zone"),
        ("2030-01-15T13:00", "no zone"),
        ("2030-01-15", "not a date and time"),
        ("tomorrow", "not a date and time"),
        ("", "not a date and time"),
        (None, "null"),
        (1894712400, "not a date and time"),
        (["2030-01-15T13:00:00Z"], "not a date and time"),
        ("20300115T130000Z", "not a date and time"),
        ("2030-W03-2T13:00:00Z", "not a date and time"),
        ("2030-01-15T13:00:00 Z", "not a date and time"),
        ("٢٠٣٠-01-15T13:00:00Z", "not a date and time"),
        ("2030-01-15T13:00:00.5Z", "fractions"),
        ("2030-01-15T13:00:00,000001Z", "fractions"),
        ("2030-02-30T13:00:00Z", "no such"),
        ("2030-01-15T13:00:60Z", "no such"),
        ("2030-01-15T13:00:00+24:00", "no such"),
        ("2030-01-15T13:00:00+01:99", "not a date and time"),
        ("0001-01-01T00:00:00+01:00", "no such"),
        ("9999-12-31T23:59:59-01:00", "no such"),
        ("0000-01-01T00:00:00Z", "no such"),
    ],
)
def test_a_time_that_does_not_say_when_is_refused(story: Story, time: Any, reason: str) -> None:
    for name in ("start", "end", "before_end"):
        found = refused(story, **{name: time})
        assert places(found) == {f"#/{name}"}
        assert reason in found["detail"]
        assert found["code"] == ("invalid_date" if time is not None else "invalid_input")


@pytest.mark.parametrize(
    "time",
    [
        "2030-01-15T13:00:00Z",
        "2030-01-15T13:00Z",
        "2030-01-15t13:00:00z",
        "2030-01-15 13:00:00+00:00",
        "2030-01-15T13:00:00.000Z",
        "2030-01-15T14:00:00+0100",
        "2030-01-16T12:59:00+23:59",
    ],
)
def test_a_moment_can_be_written_in_several_ways(story: Story, time: str) -> None:
    assert story.ok("POST", LEASES, story.asking(start=time))["start"] == "2030-01-15T13:00:00Z"


def test_all_that_is_wrong_is_told_at_once(story: Story) -> None:
    body = {"nmae": "x", "start": "2030", "reservations": [{"params": []}], "events": 1}
    found = story.problem(400, "POST", LEASES, body)
    assert found["code"] == "invalid_input"
    assert found["detail"].endswith("(6 more in errors)")
    assert places(found) == {
        *("#/nmae", "#/name", "#/start", "#/end", "#/events"),
        *("#/reservations/0/params", "#/reservations/0/resource_type"),
    }
    body = story.asking(reservations=[hosts("x"), hosts(1, None), {"resource_type": "no:such"}])
    assert places(story.problem(400, "POST", LEASES, body)) == {"#/reservations/2/resource_type"}
    body["reservations"].pop()
    found = story.problem(400, "POST", LEASES, body)
    assert places(found) == {"#/reservations/0/params/min", "#/reservations/1/params/max"}


def test_an_error_of_one_kind_has_the_code_of_that_kind(story: Story) -> None:
    found = story.problem(400, "POST", LEASES, {})
    assert found["code"] == "missing_parameter"
    assert places(found) == {"#/name", "#/start", "#/end"}
    found = refused(story, reservations=[{"resource_type": "no:such"}])
    assert found["code"] == "unsupported_resource_type"
    found = refused(story, reservations=[hosts(resource_properties=["<", "$vcpus"])])
    assert found["code"] == "invalid_query"
    assert places(found) == {"#/reservations/0/params"}
    assert refused(story, start="2029-01-15T13:00:00Z")["code"] == "invalid_date"
    assert refused(story, end=story.moment(59))["code"] == "invalid_date"


def test_a_thousand_mistakes_do_not_make_a_thousand_lines(story: Story) -> None:
    found = refused(story, **{f"key{number}": 1 for number in range(1_000)})
    assert len(found["errors"]) == 100
    assert "(999 more" in found["detail"]


@pytest.mark.parametrize("said", ["text/plain", "application/x-www-form-urlencoded", "text/json"])
@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_body_that_says_it_is_something_else_is_not_read(
    story: Story, method: str, said: str
) -> None:
    lease = story.ok("POST", LEASES, story.asking())
    path = LEASES if method == "POST" else f"{LEASES}/{lease['id']}"
    response = story.http.open(path, method=method, data=b"{}", content_type=said)
    assert problem(response, 415)["code"] == "unsupported_media_type"


@pytest.mark.parametrize(
    "said", [None, "application/json", "application/json; charset=utf-8", "application/x+json"]
)
def test_json_is_read_whether_or_not_it_says_so(story: Story, said: str | None) -> None:
    data = json.dumps(story.asking())
    assert story.http.post(LEASES, data=data, content_type=said).status_code == 201


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{", b"\xff", b'{"name": NaN}'])
def test_a_body_that_is_no_json_object_is_refused(story: Story, data: bytes) -> None:
    assert problem(story.http.post(LEASES, data=data), 400)["code"] == "invalid_input"


def test_what_the_framework_refuses_is_a_problem_too(story: Story) -> None:
    assert story.problem(404, "GET", "/v2/nosuch")["code"] == "not_found"
    assert story.problem(404, "GET", "/v2/leases/")["code"] == "not_found"
    response = story.call("PUT", LEASES)
    assert problem(response, 405)["code"] == "method_not_allowed"
    assert response.headers["Allow"] == "GET, HEAD, OPTIONS, POST"
    large = story.http.post(LEASES, data=b"{" + b" " * 1024 * 1024 + b"}")
    assert problem(large, 413)["code"] == "content_too_large"
    assert story.problem(400, "GET", f"{LEASES}?name=%00")["code"] == "invalid_input"


def test_the_details_of_an_error_are_members_of_the_problem(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(ClimateError):
        code = "not_found"
        status = 409

    def refuse(*_arguments: Any) -> None:
        raise Full("no", {"free": 3, "alternatives": [{"start": "later"}], "status": 200})

    monkeypatch.setattr(leases, "create", refuse)
    found = story.problem(409, "POST", LEASES, story.asking())
    assert (found["free"], found["alternatives"]) == (3, [{"start": "later"}])
    old = story.call("POST", "/v1/leases", story.lease_body())
    assert set(old.get_json()) == {"error_code", "error_message", "error_name"}


def test_a_defect_of_ours_tells_nothing(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: Any) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(leases, "create", fail)
    found = story.problem(500, "POST", LEASES, story.asking())
    assert found["code"] == "error"
    assert "secret" not in json.dumps(found)


@pytest.mark.parametrize(
    "expression",
    [
        r'["==", "$vcpus", "\u0000"]',
        r'["==", "$vcpus", "\ud800"]',
        r'["==", "$\ud800", "1"]',
        r'{"capabilities:\ud800": "1"}',
        r'{"capabilities:vcpus": "\u0000"}',
    ],
)
def test_what_no_database_can_look_up_is_refused(story: Story, expression: str) -> None:
    refused(story, reservations=[hosts(resource_properties=expression)])


@pytest.mark.parametrize(
    "params",
    [
        "[" * 20_000,
        '{"a":' * 20_000,
        r'{"min": "\ud800"}',
        "[]",
        '{"min": 0}',
        '{"mox": 1}',
        '{"resource_properties": ["=="]}',
        '{"resource_properties": ["==", "$none", 1]}',
    ],
)
def test_parameters_in_a_query_are_refused_as_those_in_a_body(story: Story, params: str) -> None:
    query = {"resource_type": "physical:host", "end": story.moment(60), "params": params}
    found = story.problem(400, "GET", f"/v2/availability?{urlencode(query)}")
    assert [one["parameter"] for one in found["errors"]] == ["params"]


def test_the_calendar_ends_in_9999(story: Story) -> None:
    new_year = {"start": "9999-12-31T00:00:00Z", "duration": 366 * 86400}
    body = {"name": "late", "reservations": [], **new_year}
    made = story.ok("POST", LEASES, body)
    assert made["end"] == "9999-12-31T23:59:59Z"
    span = {"start_after": "9999-12-30T00:00:00Z", "end_by": "9999-12-31T23:59:59Z"}
    for count, found in ((1, 1), (100, 0)):
        search = {**span, "duration": 3600, "reservations": [hosts(count, count)]}
        windows = story.ok("POST", "/v2/availability/search", search)["windows"]
        assert len(windows) == found
