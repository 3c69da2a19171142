"""Compression of large answers."""

import gzip
import json
from contextlib import closing

from tests.support.service import Story, hosts

GZIP = {"Accept-Encoding": "gzip, deflate, br"}
LEASES = "/v2/leases"


def test_large_json_is_compressed_for_clients_that_accept_it(story: Story) -> None:
    plain = story.call("GET", "/v2/openapi.json")
    assert "Content-Encoding" not in plain.headers
    for refusing in ("gzip;q=0", "identity", "br"):
        answer = story.call("GET", "/v2/openapi.json", headers={"Accept-Encoding": refusing})
        assert answer.data == plain.data
    packed = story.call("GET", "/v2/openapi.json", headers=GZIP)
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in packed.headers["Vary"]
    assert int(packed.headers["Content-Length"]) == len(packed.data) < len(plain.data) / 4
    assert gzip.decompress(packed.data) == plain.data


def test_event_streams_are_not_compressed(story: Story) -> None:
    with closing(story.call("GET", "/v2/notifications/stream", headers=GZIP)) as answer:
        assert answer.mimetype == "text/event-stream"
        assert "Content-Encoding" not in answer.headers


def test_small_answers_and_secrets_of_the_console_are_not_compressed(story: Story) -> None:
    for path in (LEASES, "/console/session", "/v2/leases/none"):
        answer = story.call("GET", path, headers=GZIP)
        assert "Content-Encoding" not in answer.headers
        assert "Accept-Encoding" not in answer.headers.get("Vary", "")


def test_the_etag_of_a_compressed_lease_works_in_conditions(story: Story) -> None:
    events = [{"type": f"mine.{number}", "at": story.moment(70)} for number in range(60)]
    body = story.asking(events=events, reservations=[hosts()])
    created = story.call("POST", LEASES, body, headers=GZIP)
    path = f"{LEASES}/{json.loads(gzip.decompress(created.data))['id']}"
    tag = story.call("GET", path, headers=GZIP).headers["ETag"]
    assert tag == created.headers["ETag"]
    assert story.call("GET", path, headers={**GZIP, "If-None-Match": tag}).status_code == 304
    change = {**GZIP, "If-Match": tag}
    assert story.call("PATCH", path, {"name": "new"}, headers=change).status_code == 200
    assert story.problem(412, "PATCH", path, {"name": "newer"}, headers=change)
