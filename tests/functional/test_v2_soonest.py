"""POST /v2/leases with start asap: it begins as soon as there is enough for it."""

from typing import Any

import pytest

from climate.manager import availability
from climate.manager.availability import Offer
from tests.support.service import Story, host_reservation

HOSTS = {"resource_type": "physical:host", "params": {"min": 4, "max": 4}}


def asap(**fields: Any) -> dict[str, Any]:
    return {
        "name": "soon",
        "start": "asap",
        "duration": 1800,
        "end_by": "2030-01-15T18:00:00Z",
        "reservations": [HOSTS],
        **fields,
    }


def times(lease: dict[str, Any]) -> tuple[str, str]:
    return lease["start"][11:19], lease["end"][11:19]


def test_it_begins_now_if_there_is_enough(story: Story) -> None:
    assert times(story.ok("POST", "/v2/leases", asap())) == ("12:00:00", "12:30:00")


def test_it_begins_when_there_is_enough(story: Story) -> None:
    story.reserve(20, 40, reservations=[host_reservation(1, 1)])
    assert times(story.ok("POST", "/v2/leases", asap())) == ("12:40:00", "13:10:00")
    assert times(story.ok("POST", "/v2/leases", asap(duration=600))) == ("12:00:00", "12:10:00")


def test_without_reservations_there_is_nothing_to_wait_for(story: Story) -> None:
    made = story.ok("POST", "/v2/leases", asap(reservations=[]))
    assert times(made) == ("12:00:00", "12:30:00")


def test_what_cannot_end_in_time_is_refused(story: Story) -> None:
    story.reserve(0, 345, reservations=[host_reservation(1, 1)])
    refusal = story.problem(409, "POST", "/v2/leases", asap())
    assert refusal["code"] == "not_enough_resources"
    assert "0:30:00 in a row" in refusal["detail"]


def test_the_refusal_says_what_is_in_the_way_now_and_what_would_do(story: Story) -> None:
    story.reserve(0, 345, reservations=[host_reservation(1, 1)])
    refusal = story.problem(409, "POST", "/v2/leases", asap())
    assert (refusal["asked"], refusal["free"], refusal["missing"]) == (4, 3, 1)
    assert [one["end"] for one in refusal["blocked_by"]] == ["2030-01-15T17:45:00Z"]
    assert [one["differs"] for one in refusal["alternatives"]] == ["later", "fewer"]


def test_what_is_taken_meanwhile_is_looked_for_again(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = availability.search

    def slow(*arguments: Any) -> list[Offer]:
        found = search(*arguments)
        monkeypatch.setattr(availability, "search", search)
        story.reserve(0, 10, reservations=[host_reservation(1, 1)])
        return found

    monkeypatch.setattr(availability, "search", slow)
    assert times(story.ok("POST", "/v2/leases", asap())) == ("12:10:00", "12:40:00")


def test_the_same_request_twice_is_one_lease(story: Story) -> None:
    key = {"Idempotency-Key": "once"}
    first = story.http.post("/v2/leases", json=asap(), headers=key)
    story.clock.advance(60)
    second = story.http.post("/v2/leases", json=asap(), headers=key)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.get_json() == second.get_json()


def test_any_lease_may_have_a_duration_instead_of_an_end(story: Story) -> None:
    start = "2030-01-15T13:00:00Z"
    made = story.ok("POST", "/v2/leases", {"name": "long", "start": start, "duration": 5400})
    assert times(made) == ("13:00:00", "14:30:00")


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"end": "2030-01-15T13:00:00Z"}, "#/end"),
        ({"start": "now"}, "#/end_by"),
        ({"events": [{"type": "mine", "at": "2030-01-15T13:00:00Z"}]}, "#/start"),
        ({"before_end": "2030-01-15T13:00:00Z"}, "#/start"),
        ({"duration": 0}, "#/duration"),
    ],
)
def test_what_does_not_go_together_is_refused(
    story: Story, change: dict[str, Any], pointer: str
) -> None:
    answer = story.call("POST", "/v2/leases", asap(**change))
    assert answer.status_code == 400
    assert pointer in [one["pointer"] for one in answer.get_json()["errors"]]


@pytest.mark.parametrize("name", ["duration", "end_by"])
def test_it_must_be_known_how_long_and_until_when(story: Story, name: str) -> None:
    body = {key: value for key, value in asap().items() if key != name}
    assert story.call("POST", "/v2/leases", body).status_code == 400


def test_without_reservations_it_must_end_in_time_too(story: Story) -> None:
    body = asap(reservations=[], duration=7 * 3600)
    assert story.problem(400, "POST", "/v2/leases", body)["code"] == "invalid_date"


def test_of_two_with_one_key_the_second_is_told_what_the_first_has_got(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, key = asap(end_by="2030-01-15T12:30:00Z"), {"Idempotency-Key": "key-1"}
    search = availability.search

    def overtaken(*arguments: Any) -> list[Offer]:
        monkeypatch.setattr(availability, "search", search)
        story.call("POST", "/v2/leases", body, headers=key)
        return search(*arguments)

    monkeypatch.setattr(availability, "search", overtaken)
    assert story.call("POST", "/v2/leases", body, headers=key).status_code == 201
    assert len(story.ok("GET", "/v2/leases")["leases"]) == 1
