"""Errors of v2 on the wire: each is a problem (RFC 9457) that says what is wrong, and where."""

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from climate.api.v1 import leases as v1_leases
from climate.api.v2.leases import views
from climate.core.errors import ClimateError
from tests.support.service import Story, hosts, problem

LEASES = "/v2/leases"


_UNKNOWN = "This key is unknown. Did you mean name?"


def rejected(story: Story, **fields: Any) -> dict[str, Any]:
    return story.problem(400, "POST", LEASES, {**story.asking(), **fields})


def places(found: dict[str, Any]) -> set[str]:
    return {error["pointer"] for error in found["errors"]}


def test_a_malformed_request_is_a_problem_with_its_places(story: Story) -> None:
    found = rejected(story, nmae="x")
    assert found["code"] == "invalid_input"
    assert found["errors"] == [{"pointer": "#/nmae", "detail": _UNKNOWN}]
    found = rejected(story, reservations=[hosts(), hosts(mox=2)])
    assert places(found) == {"#/reservations/1/params/mox"}
    found = rejected(story, reservations=[hosts("x"), hosts(1, None), {"resource_type": "no:such"}])
    assert places(found) == {"#/reservations/2/resource_type"}
    found = rejected(story, reservations=[hosts("x"), hosts(1, None)])
    assert places(found) == {"#/reservations/0/params/min", "#/reservations/1/params/max"}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"reservations": [{"resource_type": "no:such"}]}, "unsupported_resource_type"),
        ({"reservations": [hosts(resource_properties=["<", "$vcpus"])]}, "invalid_query"),
        ({"start": "2029-01-15T13:00:00Z"}, "invalid_date"),
        ({"end": story.moment(59)}, "invalid_date"),
        ({"end": "tomorrow"}, "invalid_date"),
    ]
    for fields, code in cases:
        assert rejected(story, **fields)["code"] == code
    assert places(rejected(story, reservations=[hosts(resource_properties=["<", "$vcpus"])])) == {
        "#/reservations/0/params/resource_properties"
    }
    for expression in [
        r'["==", "$vcpus", "\u0000"]',
        r'["==", "$vcpus", "\ud800"]',
        r'["==", "$\ud800", "1"]',
        r'{"capabilities:\ud800": "1"}',
        r'{"capabilities:vcpus": "\u0000"}',
    ]:
        rejected(story, reservations=[hosts(resource_properties=expression)])
    assert story.ok("GET", LEASES)["leases"] == []


def test_an_unknown_property_is_a_problem_with_the_place_of_its_expression(story: Story) -> None:
    known, unknown = ["==", "$vcpus", 64], ["==", "$vcpu", 64]
    both = [hosts(resource_properties=known), hosts(hypervisor_properties=unknown)]
    place = {"#/reservations/1/params/hypervisor_properties"}
    window = {"duration": 60, "end_by": "2030-01-16T12:00:00Z"}
    found = rejected(story, reservations=both)
    assert (places(found), found["code"]) == (place, "invalid_query")
    assert "Unknown property vcpu at [1]; did you mean vcpus?" in found["detail"]
    search = {"reservations": both, **window}
    assert places(story.problem(400, "POST", "/v2/availability/search", search)) == place
    asap = {"name": "l", "reservations": [hosts(resource_properties={"resources:GPU": 1})]}
    found = story.problem(
        400, "POST", f"{LEASES}?dry_run=true", {**asap, **window, "start": "asap"}
    )
    assert places(found) == {"#/reservations/0/params/resource_properties"}


def test_an_unknown_property_in_a_change_has_its_place(story: Story) -> None:
    lease = story.ok("POST", LEASES, story.asking())
    path, id_ = f"{LEASES}/{lease['id']}", lease["reservations"][0]["id"]
    change = {"reservations": [{"id": id_, "params": {"resource_properties": ["=", "$vcpu", 1]}}]}
    found = story.problem(400, "PATCH", path, change)
    assert places(found) == {"#/reservations/0/params/resource_properties"}
    added = {"add_reservations": [hosts(resource_properties='["=", "$vcpu", 1]')]}
    found = story.problem(400, "PATCH", path, added)
    assert places(found) == {"#/add_reservations/0/params/resource_properties"}


@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ({"start": "2029-01-15T13:00:00Z"}, ["2029-01-15 13:00:00 UTC", "send now"]),
        ({"end": "2030-01-15T12:30:00Z"}, ["2030-01-15 12:30:00 UTC", "2030-01-15 13:00:00 UTC"]),
        ({"reservations": [hosts(3, 2)]}, ["min 3 is larger than max 2"]),
        ({"reservations": [hosts("two")]}, ["'two' is not a whole number"]),
        ({"reservations": [{"resource_type": "physical:hosts"}]}, ["Did you mean physical:host?"]),
    ],
)
def test_a_problem_names_the_wrong_value_and_what_is_allowed(
    story: Story, fields: dict[str, Any], texts: list[str]
) -> None:
    detail = rejected(story, **fields)["detail"]
    assert [text for text in texts if text not in detail] == []


def test_a_missing_key_is_a_problem_that_says_so(story: Story) -> None:
    body = story.asking()
    del body["name"]
    found = story.problem(400, "POST", LEASES, body)
    assert found["code"] == "missing_parameter"
    assert found["errors"] == [{"pointer": "#/name", "detail": "This is required."}]


def test_a_malformed_query_is_a_problem_with_its_parameter(story: Story) -> None:
    for path in (
        *(f"{LEASES}?limit=0", f"{LEASES}?sort=id", f"{LEASES}?status=active"),
        *(f"{LEASES}?marker=x", "/v2/resources?unknown=1", "/v2/notifications?wait=61"),
        *("/v2/notifications/stream?wait=1", "/v2/availability?resource_type=physical:host"),
    ):
        found = story.problem(400, "GET", path)
        parameter = "end" if "availability" in path else path.partition("?")[2].partition("=")[0]
        assert [error["parameter"] for error in found["errors"]] == [parameter]
    assert story.problem(400, "GET", f"{LEASES}?name=%00")["code"] == "invalid_input"
    lease = story.ok("POST", LEASES, story.asking())
    path = f"{LEASES}/{lease['id']}"
    # A misspelt parameter of a request that changes something is never ignored.
    for method, target, body in (
        ("POST", LEASES, story.asking()),
        ("PATCH", path, {"name": "other"}),
        ("DELETE", path, None),
    ):
        found = story.problem(400, method, f"{target}?dryrun=true", body)
        assert [error["parameter"] for error in found["errors"]] == ["dryrun"]
    assert story.ok("GET", LEASES)["leases"] == [lease]


def test_parameters_in_a_query_are_checked_like_those_in_a_body(story: Story) -> None:
    for params in [
        *("[" * 20_000, '{"a":' * 20_000, r'{"min": "\ud800"}', "[]", "nonsense"),
        *('{"min": 0}', '{"mox": 1}', '{"resource_properties": ["=="]}'),
        '{"resource_properties": ["==", "$none", 1]}',
    ]:
        query = {"resource_type": "physical:host", "end": story.moment(60), "params": params}
        found = story.problem(400, "GET", f"/v2/availability?{urlencode(query)}")
        assert [error["parameter"] for error in found["errors"]] == ["params"]


def test_reads_json_and_no_other_type_of_body(story: Story) -> None:
    lease = story.ok("POST", LEASES, story.asking())
    for said in ("text/plain", "application/x-www-form-urlencoded", "text/json"):
        for method, path in (("POST", LEASES), ("PATCH", f"{LEASES}/{lease['id']}")):
            response = story.http.open(path, method=method, data=b"{}", content_type=said)
            assert problem(response, 415)["code"] == "unsupported_media_type"
    data = json.dumps(story.asking())
    json_types = ["application/json", "application/json; charset=utf-8", "application/x+json"]
    for accepted in (None, *json_types):
        path = f"{LEASES}?dry_run=true"
        assert story.http.post(path, data=data, content_type=accepted).status_code == 200
    for malformed in (b"", b"[]", b"null", b"{", b"\xff", b'{"name": NaN}'):
        assert problem(story.http.post(LEASES, data=malformed), 400)["code"] == "invalid_input"


def test_rejects_a_repeated_key_at_any_depth(story: Story) -> None:
    for data in (b'{"name": "a", "name": "b"}', b'{"reservations": [{"a": {"x": 1, "x": 1}}]}'):
        response = story.http.post(LEASES, data=data, content_type="application/json")
        found = problem(response, 400)
        assert (found["code"], "twice" in found["detail"]) == ("invalid_input", True)


def test_errors_of_the_framework_and_of_tokens_are_problems(story: Story) -> None:
    assert story.problem(404, "GET", "/v2/nosuch")["code"] == "not_found"
    assert story.problem(404, "GET", "/v2/leases/")["code"] == "not_found"
    response = story.call("PUT", LEASES)
    assert problem(response, 405)["code"] == "method_not_allowed"
    assert response.headers["Allow"] == "GET, HEAD, OPTIONS, POST"
    large = story.http.post(LEASES, data=b"{" + b" " * 1024 * 1024 + b"}")
    assert problem(large, 413)["code"] == "content_too_large"
    for method, path in (("GET", LEASES), ("POST", LEASES), ("GET", "/v2/resources")):
        found = story.problem(401, method, path, token="nonsense")
        assert found["code"] == "unauthenticated"


def test_the_type_of_a_problem_is_a_page_without_a_token(story: Story) -> None:
    found = story.http.get("/v2/leases/none", base_url="https://localhost/reservation").get_json()
    assert found["type"] == "/reservation/v2/errors/not_found"
    page = story.ok("GET", "/v2/errors/invalid_query", token="nonsense")
    assert (page["code"], page["status"]) == ("invalid_query", 400)
    assert all(page[key] for key in ("title", "meaning", "what_to_do"))
    html = story.call("GET", "/v2/errors/invalid_query", headers={"Accept": "text/html,*/*;q=0.8"})
    assert html.mimetype == "text/html"
    text = html.get_data(as_text=True)
    assert "<code>[&quot;&gt;=&quot;, &quot;$vcpus&quot;, &quot;4&quot;]</code>" in text
    assert "script" not in html.headers["Content-Security-Policy"]
    assert story.problem(404, "GET", "/v2/errors/<b>")["detail"] == "There is no error code <b>"


def test_a_path_that_does_not_exist_is_explained(story: Story) -> None:
    found = story.problem(404, "GET", "/v2/leases/")
    assert found["detail"] == "There is no path /v2/leases/: paths have no slash at the end"
    assert "/v2/docs" in story.problem(404, "GET", "/v2/nosuch")["detail"]


def test_details_of_an_error_are_members_of_the_problem_and_not_in_v1(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Detailed(ClimateError):
        code = "not_found"
        status = 409

    def fail(*_arguments: Any) -> None:
        raise Detailed("no", {"free": 3, "alternatives": [{"start": "later"}], "status": 200})

    monkeypatch.setattr(views, "create_before_promises", fail)
    monkeypatch.setattr(v1_leases, "create_before_promises", fail)
    found = story.problem(409, "POST", LEASES, story.asking())
    assert (found["free"], found["alternatives"]) == (3, [{"start": "later"}])
    v1 = story.call("POST", "/v1/leases", story.lease_body())
    assert set(v1.get_json()) == {"error_code", "error_message", "error_name"}


def test_an_unexpected_error_reveals_nothing(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: Any) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(views, "create_before_promises", fail)
    monkeypatch.setattr(v1_leases, "create_before_promises", fail)
    found = story.problem(500, "POST", LEASES, story.asking())
    assert found["code"] == "error"
    assert "secret" not in json.dumps(found)
