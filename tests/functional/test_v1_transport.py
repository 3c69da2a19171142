"""HTTP around v1: discovery, versions, headers, the shapes of errors, and bodies nobody expects."""

import json
import re
from typing import Any

import pytest
from werkzeug.test import TestResponse

from tests.support.service import Story

VERSION_1 = {
    "id": "v1.0",
    "status": "CURRENT",
    "links": [{"rel": "self", "href": "http://localhost/v1"}],
    "min_version": "1.0",
    "max_version": "1.0",
}
JSON = {"Content-Type": "application/json"}
REQUEST_ID = re.compile(r"req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def versioned(story: Story, version: str) -> TestResponse:
    """Ask for a version of the API."""
    return story.http.get("/v1/leases", headers={"OpenStack-API-Version": version})


def assert_framework_error(response: TestResponse, status: int) -> str:
    """Check the shape of errors that no view made; return the message."""
    assert response.status_code == status, response.get_data(as_text=True)
    assert response.mimetype == "application/json"
    message = response.get_json()["error_message"]
    assert response.get_json() == {"error": status, "error_message": message}
    assert REQUEST_ID.fullmatch(response.headers["X-Openstack-Request-Id"])
    return str(message)


def assert_error(response: TestResponse, status: int, code: str) -> str:
    """Check the shape of errors that the application made; return the message."""
    assert response.status_code == status, response.get_data(as_text=True)
    assert response.mimetype == "application/json"
    message = response.get_json()["error_message"]
    assert response.get_json() == {
        "error_code": status,
        "error_message": message,
        "error_name": status,
    }
    assert response.headers["Climate-Error-Code"] == code
    assert REQUEST_ID.fullmatch(response.headers["X-Openstack-Request-Id"])
    return str(message)


def test_versions_are_listed_to_anyone(story: Story) -> None:
    for path in ["/", "/versions"]:
        for token in [None, "alice:lab", "not a token"]:
            response = story.call("GET", path, token=token)
            assert response.status_code == 300
            first, second = response.get_json()["versions"]
            assert first == VERSION_1
            assert (second["id"], second["status"]) == ("v2.0", "EXPERIMENTAL")
            assert "OpenStack-API-Version" not in response.headers
            assert "Vary" not in response.headers


def test_version_1_describes_itself_to_anyone(story: Story) -> None:
    for path in ["/v1", "/v1/"]:
        for token in [None, "not a token"]:
            assert story.ok("GET", path, token=token) == {"version": VERSION_1}


def test_links_lead_to_the_host_that_was_asked(story: Story) -> None:
    response = story.http.get("/", base_url="https://leases.example:8443")
    links = [version["links"][0]["href"] for version in response.get_json()["versions"]]
    assert links == ["https://leases.example:8443/v1", "https://leases.example:8443/v2"]


def test_links_keep_the_path_that_the_service_is_mounted_at(story: Story) -> None:
    response = story.http.get("/", base_url="https://example.org/reservation")
    first = response.get_json()["versions"][0]
    assert first["links"][0]["href"] == "https://example.org/reservation/v1"


def test_version_1_0_is_served(story: Story) -> None:
    for version in [
        "reservation 1.0",
        "reservation latest",
        "Reservation 1.0",
        "compute 2.1",
        "compute 2.1, reservation 1.0",
        "1.0",
        "9.9",
        "",
    ]:
        response = versioned(story, version)
        assert response.status_code == 200
        assert response.headers["OpenStack-API-Version"] == "reservation 1.0"
        assert response.headers["Vary"] == "OpenStack-API-Version"


def test_no_other_version_is_served(story: Story) -> None:
    for version in ["1.1", "2.0", "0.9", "1.10", "99999.99999"]:
        message = assert_framework_error(versioned(story, f"reservation {version}"), 406)
        assert message.count("1.0") >= 2
        assert version in message


def test_a_version_that_is_none_is_refused(story: Story) -> None:
    for version in ["1", "foo", "1.0.0", "v1.0", "-1.0", "LATEST", "\u0661.0"]:
        value = f"reservation {version}".encode().decode("latin-1")
        assert_framework_error(versioned(story, value), 400)


def test_the_version_is_looked_at_before_the_token(story: Story) -> None:
    headers = {"OpenStack-API-Version": "reservation 2.0", "X-Auth-Token": "bad"}
    assert story.http.get("/v1/leases", headers=headers).status_code == 406


def test_every_answer_has_a_request_id_of_its_own(story: Story) -> None:
    for path in ["/", "/v1", "/v1/leases", "/v1/nothing", "/v1/leases/nope"]:
        mine = "req-11111111-1111-4111-8111-111111111111"
        answers = [
            story.http.get(path, headers={"X-OpenStack-Request-ID": mine}).headers for _ in range(2)
        ]
        ids = {headers["X-Openstack-Request-Id"] for headers in answers}
        assert len(ids) == 2
        assert mine not in ids
        assert all(REQUEST_ID.fullmatch(id_) for id_ in ids)


def test_a_request_id_that_is_none_is_ignored(story: Story) -> None:
    for sent in ["", "x", "req-1", "x" * 5000]:
        response = story.http.get("/v1/leases", headers={"X-OpenStack-Request-ID": sent})
        assert response.status_code == 200


def test_json_is_answered_whatever_is_accepted(story: Story) -> None:
    for accept in [None, "*/*", "application/json", "text/html", "garbage"]:
        response = story.http.get("/v1/leases", headers={"Accept": accept} if accept else {})
        assert (response.status_code, response.mimetype) == (200, "application/json")


@pytest.mark.parametrize("mimetype", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_a_body_is_json_whatever_it_is_called(story: Story, mimetype: str | None) -> None:
    data = json.dumps(story.lease_body())
    response = story.http.post("/v1/leases", data=data, content_type=mimetype)
    assert response.status_code == 201


def test_an_unknown_path_is_not_found(story: Story) -> None:
    for path in [
        "/v1/nothing",
        "/v1/leases/",
        "//v1/leases",
        "/v1//leases",
        "/V1/leases",
        "/v3",
        "/versions/",
        "/v1/leases/a/b",
    ]:
        response = story.call("GET", path)
        assert_framework_error(response, 404)
        assert "OpenStack-API-Version" not in response.headers


def test_a_method_that_a_path_does_not_know_is_refused_with_those_it_knows(story: Story) -> None:
    for method, path, allowed in [
        ("PATCH", "/v1/leases", {"GET", "HEAD", "OPTIONS", "POST"}),
        ("POST", "/v1/leases/x", {"DELETE", "GET", "HEAD", "OPTIONS", "PUT"}),
        ("POST", "/", {"GET", "HEAD", "OPTIONS"}),
        ("TRACE", "/v1/leases", {"GET", "HEAD", "OPTIONS", "POST"}),
    ]:
        response = story.call(method, path)
        assert_framework_error(response, 405)
        assert set(response.headers["Allow"].split(", ")) == allowed


def test_head_answers_like_get_without_a_body(story: Story) -> None:
    for path in ["/", "/v1", "/v1/leases", "/v1/os-hosts", "/v1/leases/nope"]:
        got, head = story.call("GET", path), story.call("HEAD", path)
        assert head.status_code == got.status_code
        assert head.get_data() == b""
        assert head.headers["Content-Length"] == got.headers["Content-Length"]
        assert head.mimetype == got.mimetype


def test_options_names_the_methods_and_tells_nothing_else(story: Story) -> None:
    response = story.call("OPTIONS", "/v1/leases", token="not a token")
    assert response.status_code == 200
    assert set(response.headers["Allow"].split(", ")) == {"GET", "HEAD", "OPTIONS", "POST"}
    assert response.get_data() == b""


BODY_ROUTES = [
    ("POST", "/v1/leases"),
    ("PUT", "/v1/leases/{lease}"),
    ("POST", "/v1/os-hosts"),
    ("PUT", "/v1/os-hosts/1"),
    ("PATCH", "/v1/os-hosts/properties/x"),
]
NO_OBJECTS = [
    None,
    b"",
    b"   ",
    b"{",
    b"nonsense",
    b"{'name': 'x'}",
    b'{"name": "x"} x',
    b'{"name": NaN}',
    b'{"name": Infinity}',
    b'{"name": 1e999}',
    b'{"name": "\xff"}',
    b'{"name": "\\u0000"}',
    b'{"\\u0000": "name"}',
    b'{"name": "\\ud800"}',
    b'{"name": {"deep": ["\\udfff"]}}',
    b"[" * 100_000,
    b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    b'{"a":' * 100 + b"1" + b"}" * 100,
    b'{"min": ' + b"9" * 5_000 + b"}",
    b"[]",
    b'[{"name": "x"}]',
    b'"text"',
    b"5",
    b"null",
    b"true",
]


def send(story: Story, method: str, path: str, data: bytes | None) -> TestResponse:
    """Send ``data`` as it is."""
    return story.http.open(path, method=method, data=data, headers=JSON)


@pytest.mark.parametrize(("method", "path"), BODY_ROUTES)
def test_a_body_that_is_no_json_object_is_refused(story: Story, method: str, path: str) -> None:
    path = path.format(lease=story.reserve()["id"])
    for data in NO_OBJECTS:
        assert_error(send(story, method, path, data), 400, "invalid_input")


@pytest.mark.parametrize(("method", "path"), BODY_ROUTES)
def test_a_body_of_more_than_a_mebibyte_is_refused(story: Story, method: str, path: str) -> None:
    path = path.format(lease=story.reserve()["id"])
    data = b'{"name": "' + b"x" * 1024 * 1024 + b'"}'
    assert_framework_error(send(story, method, path, data), 413)


def test_a_body_of_almost_a_mebibyte_is_read(story: Story) -> None:
    data = json.dumps({**story.lease_body(), "ignored": "x" * 1_000_000}).encode()
    assert send(story, "POST", "/v1/leases", data).status_code == 201


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_every_encoding_of_json_is_read(story: Story, encoding: str) -> None:
    data = json.dumps(story.lease_body(name="\u2603"), ensure_ascii=False).encode(encoding)
    response = send(story, "POST", "/v1/leases", data)
    assert response.get_json()["lease"]["name"] == "\u2603"


def test_a_nul_in_the_path_names_nothing(story_everywhere: Story) -> None:
    for path in ["/v1/leases/%00", "/v1/leases/a%00b", "/v1/os-hosts/%00"]:
        assert_error(story_everywhere.call("GET", path), 404, "not_found")


def test_a_nul_in_the_query_is_refused(story_everywhere: Story) -> None:
    for query in ["lease_id=%00", "reservation_id=a%00b", "%00=x"]:
        path = f"/v1/os-hosts/allocations?{query}"
        assert_error(story_everywhere.call("GET", path), 400, "invalid_input")


def test_odd_characters_in_a_path_or_query_name_nothing(story_everywhere: Story) -> None:
    story = story_everywhere
    for part in ["%ff", "%ED%A0%80", "%E2%98%83", "%F0%9F%8E%89", "'", "%25", "x" * 5000]:
        assert_error(story.call("GET", f"/v1/leases/{part}"), 404, "not_found")
        assert_error(story.call("DELETE", f"/v1/leases/{part}"), 404, "not_found")
        assert_error(story.call("GET", f"/v1/os-hosts/{part}"), 404, "not_found")
        found: Any = story.ok("GET", f"/v1/os-hosts/allocations?lease_id={part}")["allocations"]
        assert [host["reservations"] for host in found] == [[]] * 4
