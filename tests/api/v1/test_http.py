"""HTTP of v1: discovery, versions, request ids, shapes of errors, methods and bodies."""

import json
import re

from werkzeug.test import TestResponse

from tests.support.service import Story

VERSION_1 = {
    "id": "v1.0",
    "status": "CURRENT",
    "links": [{"rel": "self", "href": "http://localhost/v1"}],
    "min_version": "1.0",
    "max_version": "1.0",
}
REQUEST_ID = re.compile(r"req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def assert_framework_error(response: TestResponse, status: int) -> str:
    """Check the shape of an error that no view made; return the message."""
    assert response.status_code == status, response.get_data(as_text=True)
    assert response.mimetype == "application/json"
    message = response.get_json()["error_message"]
    assert response.get_json() == {"error": status, "error_message": message}
    assert REQUEST_ID.fullmatch(response.headers["X-Openstack-Request-Id"])
    return str(message)


def assert_error(response: TestResponse, status: int, code: str) -> None:
    """Check the shape of an error of the application."""
    assert response.status_code == status, response.get_data(as_text=True)
    assert response.mimetype == "application/json"
    message = response.get_json()["error_message"]
    shape = {"error_code": status, "error_message": message, "error_name": status}
    assert response.get_json() == shape
    assert response.headers["Climate-Error-Code"] == code
    assert REQUEST_ID.fullmatch(response.headers["X-Openstack-Request-Id"])


def test_discovery_is_open_to_everyone(story: Story) -> None:
    for token in (None, "alice:lab", "not a token"):
        for path in ("/", "/versions"):
            response = story.call("GET", path, token=token)
            assert response.status_code == 300
            first, second = response.get_json()["versions"]
            assert first == VERSION_1
            assert (second["id"], second["status"]) == ("v2.0", "EXPERIMENTAL")
            assert not {"OpenStack-API-Version", "Vary"} & set(response.headers.keys())
        for path in ("/v1", "/v1/"):
            assert story.ok("GET", path, token=token) == {"version": VERSION_1}


def test_links_contain_the_host_and_the_path_of_the_service(story: Story) -> None:
    for base in ("https://leases.example:8443", "https://example.org/reservation"):
        versions = story.http.get("/", base_url=base).get_json()["versions"]
        links = [version["links"][0]["href"] for version in versions]
        assert links == [f"{base}/v1", f"{base}/v2"]


def test_serves_version_1_0_and_no_other(story: Story) -> None:
    def get(version: str, **headers: str) -> TestResponse:
        value = version.encode().decode("latin-1")
        return story.http.get("/v1/leases", headers={"OpenStack-API-Version": value, **headers})

    served = ["reservation 1.0", "reservation latest", "Reservation 1.0", "compute 2.1"]
    for version in (*served, "compute 2.1, reservation 1.0", "1.0", "9.9", ""):
        response = get(version)
        assert response.status_code == 200, version
        assert response.headers["OpenStack-API-Version"] == "reservation 1.0"
        assert response.headers["Vary"] == "OpenStack-API-Version"
    for version in ("1.1", "2.0", "0.9", "1.10", "99999.99999"):
        message = assert_framework_error(get(f"reservation {version}"), 406)
        assert message.count("1.0") >= 2
        assert version in message
    for version in ("1", "foo", "1.0.0", "v1.0", "-1.0", "LATEST", "\u0661.0"):
        assert_framework_error(get(f"reservation {version}"), 400)
    # The version is checked before the token.
    assert get("reservation 2.0", **{"X-Auth-Token": "bad"}).status_code == 406


def test_every_answer_has_its_own_request_id(story: Story) -> None:
    global_id = "req-11111111-1111-4111-8111-111111111111"
    ids = [
        story.http.get(path, headers={"X-OpenStack-Request-ID": sent}).headers[
            "X-Openstack-Request-Id"
        ]
        for path in ("/", "/v1", "/v1/leases", "/v1/nothing", "/v1/leases/nope")
        for sent in (global_id, global_id)
    ]
    assert len(set(ids) - {global_id}) == len(ids)
    assert all(REQUEST_ID.fullmatch(id_) for id_ in ids)
    for malformed in ("", "x", "req-1", "x" * 5000):
        headers = {"X-OpenStack-Request-ID": malformed}
        assert story.http.get("/v1/leases", headers=headers).status_code == 200


def test_reads_and_writes_json_whatever_the_headers_say(story: Story) -> None:
    for accept in (None, "*/*", "application/json", "text/html", "garbage"):
        response = story.http.get("/v1/leases", headers={"Accept": accept} if accept else {})
        assert (response.status_code, response.mimetype) == (200, "application/json")
    data = json.dumps({**story.lease_body(), "ignored": "x" * 1_000_000})
    for mimetype in (None, "text/plain", "application/x-www-form-urlencoded"):
        response = story.http.post("/v1/leases", data=data, content_type=mimetype)
        assert response.status_code == 201
    text = json.dumps(story.lease_body(name="\u2603", reservations=[]), ensure_ascii=False)
    for encoding in ("utf-8", "utf-16", "utf-32"):
        response = story.http.post("/v1/leases", data=text.encode(encoding))
        assert response.get_json()["lease"]["name"] == "\u2603"


def test_unknown_paths_and_methods_are_framework_errors(story: Story) -> None:
    paths = ["/v1/nothing", "/v1/leases/", "//v1/leases", "/v1//leases", "/V1/leases"]
    for path in (*paths, "/v3", "/versions/", "/v1/leases/a/b"):
        response = story.call("GET", path)
        assert_framework_error(response, 404)
        assert "OpenStack-API-Version" not in response.headers
    for method, path, allowed in [
        ("PATCH", "/v1/leases", {"GET", "HEAD", "OPTIONS", "POST"}),
        ("POST", "/v1/leases/x", {"DELETE", "GET", "HEAD", "OPTIONS", "PUT"}),
        ("POST", "/", {"GET", "HEAD", "OPTIONS"}),
        ("TRACE", "/v1/leases", {"GET", "HEAD", "OPTIONS", "POST"}),
    ]:
        response = story.call(method, path)
        assert_framework_error(response, 405)
        assert set(response.headers["Allow"].split(", ")) == allowed


def test_browsers_neither_store_nor_frame_nor_guess_a_response(story: Story) -> None:
    lease = story.reserve()["id"]
    for path in (f"/v1/leases/{lease}", f"/v2/leases/{lease}", "/v1/nope", "/healthz"):
        headers = story.call("GET", path).headers
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"


def test_answers_head_and_options_without_a_body(story: Story) -> None:
    for path in ("/", "/v1", "/v1/leases", "/v1/os-hosts", "/v1/leases/nope"):
        got, head = story.call("GET", path), story.call("HEAD", path)
        assert head.status_code == got.status_code
        assert head.get_data() == b""
        assert head.headers["Content-Length"] == got.headers["Content-Length"]
        assert head.mimetype == got.mimetype
    response = story.call("OPTIONS", "/v1/leases", token="not a token")
    assert (response.status_code, response.get_data()) == (200, b"")
    assert set(response.headers["Allow"].split(", ")) == {"GET", "HEAD", "OPTIONS", "POST"}


NOT_OBJECTS = [
    *(None, b"", b"   ", b"{", b"nonsense", b"{'name': 'x'}", b'{"name": "x"} x'),
    *(b'{"name": NaN}', b'{"name": Infinity}', b'{"name": 1e999}', b'{"name": "\xff"}'),
    *(b'{"name": "\\u0000"}', b'{"\\u0000": "name"}', b'{"name": "\\ud800"}'),
    *(b'{"name": {"deep": ["\\udfff"]}}', b"[" * 100_000),
    *(b'{"a":' * depth + b"1" + b"}" * depth for depth in (5_000, 100)),
    *(b'{"min": ' + b"9" * 5_000 + b"}", b"[]", b'[{"name": "x"}]', b'"text"', b"5"),
    *(b"null", b"true"),
]


def test_rejects_a_body_that_is_not_a_json_object_or_too_large(story: Story) -> None:
    lease = story.reserve()
    too_large = b'{"name": "' + b"x" * 1024 * 1024 + b'"}'
    for method, path in [
        ("POST", "/v1/leases"),
        ("PUT", f"/v1/leases/{lease['id']}"),
        ("POST", "/v1/os-hosts"),
        ("PUT", "/v1/os-hosts/1"),
        ("PATCH", "/v1/os-hosts/properties/x"),
    ]:
        headers = {"Content-Type": "application/json"}
        for data in NOT_OBJECTS:
            response = story.http.open(path, method=method, data=data, headers=headers)
            assert_error(response, 400, "invalid_input")
        response = story.http.open(path, method=method, data=too_large, headers=headers)
        assert_framework_error(response, 413)
    assert story.ok("GET", "/v1/leases") == {"leases": [lease]}


def test_no_database_finds_odd_characters_of_a_path_or_query(story_everywhere: Story) -> None:
    story = story_everywhere
    for path in ("/v1/leases/%00", "/v1/leases/a%00b", "/v1/os-hosts/%00"):
        assert_error(story.call("GET", path), 404, "not_found")
    allocations = "/v1/os-hosts/allocations"
    for query in ("lease_id=%00", "reservation_id=a%00b", "%00=x"):
        assert_error(story.call("GET", f"{allocations}?{query}"), 400, "invalid_input")
    for part in ("%ff", "%ED%A0%80", "%E2%98%83", "%F0%9F%8E%89", "'", "%25", "x" * 5000):
        for method, path in (("GET", "leases"), ("DELETE", "leases"), ("GET", "os-hosts")):
            assert_error(story.call(method, f"/v1/{path}/{part}"), 404, "not_found")
        shown = story.ok("GET", f"{allocations}?lease_id={part}")["allocations"]
        assert [host["reservations"] for host in shown] == [[]] * 4
