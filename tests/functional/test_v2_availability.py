"""/v2/availability: what is free when, and windows that would be admitted."""

import json
from typing import Any

import pytest

from tests.functional.test_v1_instances import instances, story
from tests.support.service import Story, host_reservation

__all__ = ["story"]

READER = "somebody:elsewhere:reader"
HOST = {"resource_type": "physical:host", "params": {"min": 2, "max": 2}}


def at(hour: int, minute: int = 0) -> str:
    return f"2030-01-15T{hour:02}:{minute:02}:00Z"


def reserve(story: Story, start: float, end: float, *asked: dict[str, Any]) -> str:
    return str(story.reserve(start, end, reservations=list(asked))["id"])


def free(story: Story, end: str = at(18), **query: str) -> list[tuple[str, str, int]]:
    """Return the steps that somebody of another project is shown: hours and what is free."""
    pairs = {"resource_type": "physical:host", "end": end, **query}
    asked = "&".join(f"{name}={value}" for name, value in pairs.items())
    found = story.ok("GET", f"/v2/availability?{asked}", token=READER)["steps"]
    return [(one["start"][11:16], one["end"][11:16], one["free"]) for one in found]


def search(story: Story, *asked: dict[str, Any], **fields: Any) -> list[tuple[str, str, str]]:
    body = {"reservations": list(asked), "duration": 3600, "end_by": at(18), **fields}
    found = story.ok("POST", "/v2/availability/search", body, token=READER)["windows"]
    return [tuple(one[key][11:16] for key in ("start", "end", "latest_start")) for one in found]


def test_what_is_free_is_told_without_gaps(story: Story) -> None:
    reserve(story, 60, 120, host_reservation(3, 3))
    reserve(story, 180, 240, host_reservation(1, 1))
    assert free(story) == [
        ("12:00", "13:00", 4),
        ("13:00", "14:00", 1),
        ("14:00", "15:00", 4),
        ("15:00", "16:00", 3),
        ("16:00", "18:00", 4),
    ]


def test_what_is_asked_for_is_counted(story: Story) -> None:
    large = json.dumps({"resource_properties": [">=", "$vcpus", 64]})
    assert free(story, params=large) == [("12:00", "18:00", 1)]
    sizes = json.dumps({"vcpus": 16, "memory_mb": 1})
    reserve(story, 60, 120, instances(1))
    assert free(story, resource_type="virtual:instance", params=sizes) == [
        ("12:00", "13:00", 7),
        ("13:00", "14:00", 6),
        ("14:00", "18:00", 7),
    ]


def test_whole_hosts_and_shares_are_not_free_for_each_other(story: Story) -> None:
    reserve(story, 60, 120, instances(1))
    reserve(story, 60, 120, host_reservation(3, 3))
    assert free(story)[1] == ("13:00", "14:00", 0)


def test_windows_are_found_soonest_first(story: Story) -> None:
    reserve(story, 0, 90, host_reservation(3, 3))
    reserve(story, 150, 240, host_reservation(3, 3))
    assert search(story, HOST) == [("13:30", "14:30", "13:30"), ("16:00", "17:00", "17:00")]
    assert search(story, HOST, limit=1) == [("13:30", "14:30", "13:30")]
    assert search(story, HOST, start_after=at(14)) == [("16:00", "17:00", "17:00")]
    assert search(story, HOST, duration=3601) == [("16:00", "17:00", "16:59")]


def test_a_window_suits_all_that_is_asked_for(story: Story) -> None:
    reserve(story, 0, 90, host_reservation(1, 1))
    params = {"amount": 2, "vcpus": 1, "memory_mb": 0, "disk_gb": 0, "affinity": False}
    apart = {"resource_type": "virtual:instance", "params": params}
    assert search(story, HOST, apart) == [("13:30", "14:30", "13:30")]


def test_every_window_found_is_admitted(story: Story) -> None:
    for start in range(0, 300, 70):
        reserve(story, start, start + 40, host_reservation(3, 3))
    for start, end, latest in search(story, HOST, duration=1200, limit=20):
        for begin in (start, latest):
            minutes = 60 * int(begin[:2]) + int(begin[3:]) - 720
            asked = [host_reservation(2, 2)]
            body = story.lease_body(minutes, minutes + 20, reservations=asked)
            lease = story.ok("POST", "/v1/leases", body)["lease"]
            story.ok("DELETE", f"/v1/leases/{lease['id']}")
        assert end > start


def test_cleaning_time_must_fit_too(story: Story) -> None:
    reserve(story, 0, 60, host_reservation(4, 4))
    reserve(story, 125, 185, host_reservation(4, 4))
    assert search(story, HOST)[0][0] == "13:00"
    tidy = story.runtime.settings.cleaning_time
    assert tidy.total_seconds() == 0


def test_nothing_is_found_where_nothing_fits(story: Story) -> None:
    assert search(story, {"resource_type": "physical:host", "params": {"min": 5, "max": 5}}) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"duration": 0}, "invalid_input"),
        ({"duration": "1"}, "invalid_input"),
        ({"duration": 7 * 3600}, "invalid_date"),
        ({"end_by": at(11)}, "invalid_date"),
        ({"end_by": "2032-01-15T12:00:00Z"}, "invalid_date"),
        ({"reservations": []}, "invalid_input"),
        ({"reservations": [{"resource_type": "no:such"}]}, "unsupported_resource_type"),
        ({"limit": 21}, "invalid_input"),
        ({"unknown": 1}, "invalid_input"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused(
    story: Story, change: dict[str, Any], code: str
) -> None:
    body = {"reservations": [HOST], "duration": 3600, "end_by": at(18), **change}
    answer = story.call("POST", "/v2/availability/search", body)
    assert (answer.status_code, answer.get_json()["code"]) == (400, code)


@pytest.mark.parametrize(
    "query",
    [
        "resource_type=no:such&end=2030-01-15T18:00:00Z",
        "resource_type=physical:host",
        "resource_type=physical:host&end=2030-01-15T11:00:00Z",
        "resource_type=physical:host&end=2032-01-15T11:00:00Z",
        "resource_type=physical:host&end=2030-01-15T18:00:00Z&params=%5B%5D",
        "resource_type=physical:host&end=2030-01-15T18:00:00Z&params=nonsense",
        'resource_type=physical:host&end=2030-01-15T18:00:00Z&params={"foo":1}',
    ],
)
def test_a_question_that_makes_no_sense_is_refused(story: Story, query: str) -> None:
    answer = story.call("GET", f"/v2/availability?{query}")
    assert answer.status_code == 400
