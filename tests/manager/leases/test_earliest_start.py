"""Leases with the start asap: they start as soon as there is enough capacity."""

from typing import Any

import pytest

from climate.manager.admission import window_search
from climate.manager.admission.window_search import Offer
from tests.support.service import Story, host_reservation
from tests.support.service import hosts as v2_hosts

ONE_HOST = [host_reservation(1, 1)]


def asap(**fields: Any) -> dict[str, Any]:
    return {
        "name": "soon",
        "start": "asap",
        "duration": 1800,
        "end_by": "2030-01-15T18:00:00Z",
        "reservations": [v2_hosts(4, 4)],
        **fields,
    }


def window(lease: dict[str, Any]) -> tuple[str, str]:
    return lease["start"][11:19], lease["end"][11:19]


def test_starts_at_the_first_moment_with_enough_capacity(story: Story) -> None:
    story.reserve(20, 40, reservations=ONE_HOST)
    for request, expected in [
        (asap(), ("12:40:00", "13:10:00")),
        (asap(duration=600), ("12:00:00", "12:10:00")),
    ]:
        assert window(story.ok("POST", "/v2/leases", request)) == expected
    too_long = asap(duration=7 * 3600)
    assert story.problem(400, "POST", "/v2/leases", too_long)["code"] == "invalid_date"
    fixed = {**asap(duration=5400), "start": "2030-01-15T15:00:00Z"}
    del fixed["end_by"]
    assert window(story.ok("POST", "/v2/leases", fixed)) == ("15:00:00", "16:30:00")
    far = story.problem(400, "POST", "/v2/leases", asap(end_by="2031-01-17T00:00:00Z"))
    assert [error["pointer"] for error in far["errors"]] == ["#/end_by"]
    assert "at most 366 days: here, it can end by 2031-01-16T12:00:00Z" in far["detail"]


def test_the_rejection_says_what_blocks_and_what_would_fit(story: Story) -> None:
    story.reserve(0, 345, reservations=ONE_HOST)
    problem = story.problem(409, "POST", "/v2/leases", asap())
    assert problem["code"] == "not_enough_resources"
    assert "fits nowhere for 1800 seconds from 2030-01-15 12:00 to" in problem["detail"]
    assert (problem["asked"], problem["free"], problem["missing"]) == (4, 3, 1)
    assert [blocker["end"] for blocker in problem["blocked_by"]] == ["2030-01-15T17:45:00Z"]
    # A later lease would end after end_by.
    assert [offer["differs"] for offer in problem["alternatives"]] == ["fewer"]
    assert problem["detail"].endswith("What would fit now: fewer, 3")


def test_searches_again_when_a_window_was_taken_meanwhile(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = window_search.search

    def slow(*arguments: Any, **options: Any) -> Offer | None:
        found = search(*arguments, **options)
        monkeypatch.setattr(window_search, "search", search)
        story.reserve(0, 10, reservations=ONE_HOST)
        return found

    monkeypatch.setattr(window_search, "search", slow)
    created = story.ok("POST", "/v2/leases", asap())
    assert window(created) == ("12:10:00", "12:40:00")


def test_an_idempotency_key_stands_for_one_lease_also_when_requests_overlap(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, key = asap(end_by="2030-01-15T12:40:00Z"), {"Idempotency-Key": "key-1"}
    search, overtaking = window_search.search, []

    def overtaken(*arguments: Any, **options: Any) -> Offer | None:
        monkeypatch.setattr(window_search, "search", search)
        overtaking.append(story.call("POST", "/v2/leases", body, headers=key))
        return search(*arguments, **options)

    monkeypatch.setattr(window_search, "search", overtaken)
    answers = [story.call("POST", "/v2/leases", body, headers=key)]
    story.clock.advance(60)
    answers.append(story.call("POST", "/v2/leases", body, headers=key))
    assert [answer.status_code for answer in answers] == [201, 201]
    bodies = [answer.get_json() for answer in (*overtaking, *answers)]
    assert bodies == [bodies[0]] * 3
    assert len(story.ok("GET", "/v2/leases")["leases"]) == 1


def test_every_database_moves_a_lease_to_the_earliest_window(story_everywhere: Story) -> None:
    story = story_everywhere
    story.reserve(20, 40, reservations=ONE_HOST)
    lease = story.ok("POST", "/v2/leases", story.asking(60, 90, reservations=[v2_hosts(4, 4)]))
    path = f"/v2/leases/{lease['id']}"
    preview = story.ok("PATCH", f"{path}?dry_run=true", {"start": "asap"})
    assert window(preview["lease"]) == ("12:40:00", "13:10:00")
    # Its own hosts count as free: the new window overlaps the present one.
    assert window(story.ok("PATCH", path, {"start": "asap"})) == ("12:40:00", "13:10:00")
    smaller = {"id": lease["reservations"][0]["id"], "params": {"min": 3, "max": 3}}
    change = {"start": "asap", "duration": 3000, "name": "soon", "reservations": [smaller]}
    moved = story.ok("PATCH", path, change)
    assert (window(moved), moved["name"]) == (("12:00:00", "12:50:00"), "soon")
    assert len(story.ok("GET", f"{path}/resources")["resources"]) == 3


def test_a_lease_moves_no_later_than_it_is_unless_the_request_says_so(story: Story) -> None:
    story.reserve(20, 120, reservations=ONE_HOST)
    lease = story.ok("POST", "/v2/leases", story.asking(1, 11, reservations=[v2_hosts(4, 4)]))
    path, longer = f"/v2/leases/{lease['id']}", {"start": "asap", "duration": 1800}
    refused = story.problem(409, "PATCH", path, longer)
    assert refused["code"] == "not_enough_resources"
    assert (
        "fits nowhere for 1800 seconds from 2030-01-15 12:00 to 2030-01-15 12:31"
        in (refused["detail"])
    )
    assert "later" not in [offer["differs"] for offer in refused["alternatives"]]
    later = {**longer, "end_by": story.moment(180)}
    assert window(story.ok("PATCH", path, later)) == ("14:00:00", "14:30:00")


def test_a_long_lease_of_v1_moves_only_with_a_duration(story: Story) -> None:
    path = f"/v2/leases/{story.reserve(60, 400 * 24 * 60)['id']}"
    for fields in ({}, {"end_by": story.moment(360 * 24 * 60)}):
        detail = story.problem(400, "PATCH", path, {"start": "asap", **fields})["detail"]
        assert "send a duration of at most 31622400 seconds (366 days)" in detail
        assert "end_by" not in detail
    moved = story.ok("PATCH", path, {"start": "asap", "duration": 31622400})
    assert window(moved) == ("12:00:00", "12:00:00")


def test_the_start_of_a_lease_that_has_started_does_not_move(story: Story) -> None:
    lease = story.ok("POST", "/v2/leases", story.asking(0, 60))
    path = f"/v2/leases/{lease['id']}"
    assert story.run()
    refused = story.problem(400, "PATCH", path, {"start": "asap"})
    assert refused["code"] == "invalid_date"
    assert refused["detail"] == f"Lease {lease['id']} has started: its start cannot change any more"
    for body, key in [
        ({"start": "asap", "end": story.moment(60)}, "start"),
        ({"end_by": story.moment(60)}, "end_by"),
    ]:
        problem = story.problem(400, "PATCH", path, body)
        assert [error["pointer"] for error in problem["errors"]] == [f"#/{key}"]
