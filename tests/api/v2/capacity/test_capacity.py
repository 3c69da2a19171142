"""/v2/availability and /v2/limits: free capacity, windows that would be admitted, limits."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeStory
from tests.support.bodies import HOSTS_AND_INSTANCES, copy_hosts, instances
from tests.support.service import Story, host_reservation
from tests.support.service import hosts as v2_hosts

READER = "somebody:elsewhere:reader"
TWO_HOSTS = {"resource_type": "physical:host", "params": {"min": 2, "max": 2}}


@pytest.fixture
def story(make_story: MakeStory, hosts_template: Path, tmp_path: Path) -> Story:
    copy_hosts(hosts_template, tmp_path)
    return make_story(manager__plugins=HOSTS_AND_INSTANCES)


def at(hour: int, minute: int = 0) -> str:
    return f"2030-01-15T{hour:02}:{minute:02}:00Z"


def reserve(story: Story, start: float, end: float, *reservations: dict[str, Any]) -> str:
    return str(story.reserve(start, end, reservations=list(reservations))["id"])


def free(story: Story, end: str = at(18), **query: str) -> list[tuple[str, str, int]]:
    """Return hours and free units, as a reader of another project sees them."""
    pairs = {"resource_type": "physical:host", "end": end, **query}
    text = "&".join(f"{name}={value}" for name, value in pairs.items())
    steps = story.ok("GET", f"/v2/availability?{text}", token=READER)["steps"]
    return [(step["start"][11:16], step["end"][11:16], step["free"]) for step in steps]


def search(story: Story, *reservations: dict[str, Any], **fields: Any) -> list[tuple[str, ...]]:
    body = {"reservations": list(reservations), "duration": 3600, "end_by": at(18), **fields}
    windows = story.ok("POST", "/v2/availability/search", body, token=READER)["windows"]
    keys = ("start", "end", "latest_start")
    return [tuple(window[key][11:16] for key in keys) for window in windows]


def test_free_units_are_shown_without_gaps_for_hosts_and_instances(story: Story) -> None:
    reserve(story, 60, 120, host_reservation(3, 3))
    reserve(story, 180, 240, host_reservation(1, 1))
    assert free(story) == [
        ("12:00", "13:00", 4),
        ("13:00", "14:00", 1),
        ("14:00", "15:00", 4),
        ("15:00", "16:00", 3),
        ("16:00", "18:00", 4),
    ]
    reserve(story, 60, 120, instances(1))  # on the fourth host, which is then not free as a whole
    assert free(story)[1] == ("13:00", "14:00", 0)


def test_only_units_that_match_the_parameters_are_counted(story: Story) -> None:
    large = json.dumps({"resource_properties": [">=", "$vcpus", 64]})
    assert free(story, params=large) == [("12:00", "18:00", 1)]
    size = json.dumps({"vcpus": 16, "memory_mb": 1})
    reserve(story, 60, 120, instances(1))
    assert free(story, resource_type="virtual:instance", params=size) == [
        ("12:00", "13:00", 7),
        ("13:00", "14:00", 6),
        ("14:00", "18:00", 7),
    ]


def test_windows_are_found_earliest_first(story: Story) -> None:
    reserve(story, 0, 90, host_reservation(3, 3))
    reserve(story, 150, 240, host_reservation(3, 3))
    assert search(story, TWO_HOSTS) == [("13:30", "14:30", "13:30"), ("16:00", "17:00", "17:00")]
    assert search(story, TWO_HOSTS, limit=1) == [("13:30", "14:30", "13:30")]
    assert search(story, TWO_HOSTS, start_after=at(14)) == [("16:00", "17:00", "17:00")]
    assert search(story, TWO_HOSTS, duration=3601) == [("16:00", "17:00", "16:59")]
    assert search(story, v2_hosts(5, 5)) == []


def test_a_window_fits_all_reservations(story: Story) -> None:
    reserve(story, 0, 90, host_reservation(1, 1))
    params = {"amount": 2, "vcpus": 1, "memory_mb": 0, "disk_gb": 0, "affinity": False}
    apart = {"resource_type": "virtual:instance", "params": params}
    assert search(story, TWO_HOSTS, apart) == [("13:30", "14:30", "13:30")]


def test_every_window_is_admitted_at_its_first_and_last_start(story: Story) -> None:
    for busy in range(0, 300, 70):
        reserve(story, busy, busy + 40, host_reservation(3, 3))
    windows = search(story, TWO_HOSTS, duration=1200, limit=20)
    assert windows
    for start, _end, latest in windows:
        for begin in (start, latest):
            minutes = 60 * int(begin[:2]) + int(begin[3:]) - 720
            lease = reserve(story, minutes, minutes + 20, host_reservation(2, 2))
            story.ok("DELETE", f"/v1/leases/{lease}")


def test_a_window_may_touch_leases_but_leaves_their_cleaning_time(make_story: MakeStory) -> None:
    for cleaning, expected in ((0, ["13:00", "15:05"]), (6, ["15:05"])):
        story = make_story(DEFAULT__cleaning_time=cleaning)
        if cleaning == 0:
            story.register(4)
            reserve(story, 0, 60, host_reservation(4, 4))
            reserve(story, 125, 185, host_reservation(4, 4))
        assert [start for start, *_ in search(story, TWO_HOSTS)] == expected


def test_rejects_searches_and_questions_that_make_no_sense(story: Story) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"duration": 7 * 3600}, "invalid_date"),
        ({"end_by": at(11)}, "invalid_date"),
        ({"end_by": "2032-01-15T12:00:00Z"}, "invalid_date"),
        ({"reservations": [{"resource_type": "no:such"}]}, "unsupported_resource_type"),
        ({"limit": 21}, "invalid_input"),
    ]
    for change, code in cases:
        body = {"reservations": [TWO_HOSTS], "duration": 3600, "end_by": at(18), **change}
        assert story.problem(400, "POST", "/v2/availability/search", body)["code"] == code
    for query in [
        f"resource_type=no:such&end={at(18)}",
        f"resource_type=physical:host&end={at(11)}",
        "resource_type=physical:host&end=2032-01-15T11:00:00Z",
        f'resource_type=physical:host&end={at(18)}&params={{"foo":1}}',
    ]:
        story.problem(400, "GET", f"/v2/availability?{query}")


def test_limits_show_what_parties_may_have_and_have(make_story: MakeStory) -> None:
    story = make_story()
    story.register(2)
    story.reserve(reservations=[host_reservation(2, 2)])
    shown = story.ok("GET", "/v2/limits")
    assert shown["apply"] is True, "the default limit of open leases"
    project, user = shown["parties"]
    assert (project["scope"], project["id"]) == ("project", "admin")
    assert (user["scope"], user["id"]) == ("user", "admin")
    assert (project["limits"]["leases"], project["limits"]["hosts"]) == (1000, None)
    assert (project["used"]["leases"], project["used"]["hosts"]) == (1, 2)
    assert project["used"]["host_hours"] == 2.0
    limited = make_story(limits__enabled=True, limits__project_hosts=3)
    shown = limited.ok("GET", "/v2/limits", token="me:mine:reader")
    assert shown["apply"] is True
    assert shown["parties"][0]["limits"]["hosts"] == 3
    assert shown["parties"][0]["used"]["leases"] == 0
