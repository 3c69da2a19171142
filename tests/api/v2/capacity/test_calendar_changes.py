"""/v2/calendar/changes: which days changed since a version, without names and exact edges."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import sqlalchemy as sa

from climate.core.window import Window, merged
from climate.db.tables.notifications import OutboxRow
from climate.manager.notifications import log
from climate.manager.resources import calendar_changes
from climate.manager.resources.inventory_sync import synchronise
from tests.conftest import MakeStory
from tests.support.bodies import HOSTS_AND_INSTANCES, copy_hosts, instances
from tests.support.service import Story, hosts

ALICE, BOB = "alice:mine:member", "bob:other:member"
DAY = 24 * 60
TODAY = {"start": "2030-01-15T00:00:00Z", "end": "2030-01-16T00:00:00Z"}
PATH = "/v2/calendar/changes"


@pytest.fixture
def story(make_story: MakeStory, hosts_template: Path, tmp_path: Path) -> Story:
    copy_hosts(hosts_template, tmp_path)
    return make_story(manager__plugins=HOSTS_AND_INSTANCES, DEFAULT__cleaning_time=10)


def changes(story: Story, after: str | None = None, more: str = "") -> Any:
    """Number the notifications, and return what a reader sees."""
    story.relay.flush()
    query = f"?after={after}{more}" if after is not None else ""
    return story.ok("GET", PATH + query, token=ALICE)


def version(story: Story) -> str:
    found: str = changes(story)["version"]
    return found


def book(story: Story, start: float = 60, end: float = 120) -> Any:
    body = story.asking(start, end, reservations=[hosts(1, 1)], name="secret")
    return story.ok("POST", "/v2/leases", body, token=BOB)


def days(story: Story, after: str) -> list[tuple[str, str]]:
    """Return the first and the last day of each window."""
    found = changes(story, after)
    assert not found["reset"]
    return [(window["start"][5:10], window["end"][5:10]) for window in found["changes"]]


def test_every_change_of_a_lease_shows_whole_days(story: Story) -> None:
    seen = version(story)
    lease = book(story)
    assert changes(story, seen)["changes"] == [TODAY]
    seen, path = version(story), f"/v2/leases/{lease['id']}"
    later = {"start": story.moment(2 * DAY), "end": story.moment(3 * DAY)}
    story.ok("PATCH", path, later, token=BOB)
    assert days(story, seen) == [("01-15", "01-19")], "from the window before to the one after"
    seen = version(story)
    story.at(2 * DAY)
    assert days(story, seen) == [("01-17", "01-19")], "the start"
    seen = version(story)
    story.clock.advance(60)
    story.ok("PATCH", path, {"end": "now"}, token=BOB)
    story.run()
    assert days(story, seen) == [("01-17", "01-19")], "all that the early end frees"
    seen = version(story)
    story.ok("DELETE", path, token=BOB)
    assert days(story, seen) == [("01-17", "01-18")]


def test_the_cleaning_time_is_part_of_a_change(story: Story) -> None:
    seen = version(story)
    book(story, 60, 12 * 60 - 5)  # ends five minutes before midnight
    assert days(story, seen) == [("01-15", "01-17")]


def test_a_reallocation_is_a_change(story: Story) -> None:
    lease = book(story, 60, 120)
    story.at(60)
    seen = version(story)
    [host] = story.hosts_of(lease["id"])
    story.cloud.fail_host(f"sim-{host}")
    lost = synchronise(story.runtime)
    synchronise(story.runtime, lost)
    assert story.hosts_of(lease["id"]) != [host]
    assert changes(story, seen)["changes"] != []
    assert "lease.update" in story.event_types(lease["id"])


def test_a_changed_resource_changes_everything(story: Story) -> None:
    seen = version(story)
    story.clock.advance(1)
    story.ok("PUT", "/v1/os-hosts/1", {"rack": "r1"})
    [window] = changes(story, seen)["changes"]
    assert (window["start"], window["end"]) == ("1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z")
    assert changes(story, version(story))["changes"] == []


def test_nothing_about_the_lease_is_in_the_answer(story: Story) -> None:
    seen = version(story)
    lease = book(story, 61, 119)
    story.relay.flush()
    response = story.call("GET", f"{PATH}?after={seen}", token=ALICE)
    text = response.get_data(as_text=True)
    assert not any(word in text for word in (lease["id"], "secret", "other", "13:01", "13:59"))
    assert set(response.get_json()) == {"version", "reset", "changes"}


def test_only_leases_on_resources_of_the_type_count(story: Story) -> None:
    seen = version(story)
    body = story.lease_body(60, 120, reservations=[instances(1)])
    story.ok("POST", "/v1/leases", body, token=BOB)
    # Instances are on hosts, so the calendar of hosts changes, too.
    for resource_type in ("virtual:instance", "physical:host"):
        assert changes(story, seen, f"&resource_type={resource_type}")["changes"] == [TODAY]
    problem = story.problem(400, "GET", f"{PATH}?resource_type=no:such", token=ALICE)
    assert problem["code"] == "unsupported_resource_type"


def test_a_version_that_is_too_old_starts_again(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = version(story)
    book(story)
    now = version(story)
    monkeypatch.setattr(calendar_changes, "MAX_NOTIFICATIONS", 0)
    assert changes(story, seen)["reset"] is True
    monkeypatch.undo()
    assert changes(story, "999999")["reset"] is True, "the database was restored"
    story.clock.advance(400 * 86_400)
    settings = story.runtime.settings
    assert settings.notifications_kept is not None
    log.forget_old(story.runtime.store, settings)
    found = changes(story, seen)
    assert (found["reset"], found["changes"], found["version"]) == (True, [], now)


def test_notifications_of_other_types_count_for_the_limit(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a reader could make the database read the whole log for a type without leases."""
    seen = version(story)
    book(story)
    monkeypatch.setattr(calendar_changes, "MAX_NOTIFICATIONS", 0)
    monkeypatch.setattr(calendar_changes, "_reserved_types", lambda *_: ["no:leases"])
    assert changes(story, seen, "&resource_type=physical:host")["reset"] is True


def test_a_notification_of_the_previous_release_starts_again(story: Story) -> None:
    seen = version(story)
    book(story)
    with story.runtime.database.engine.begin() as connection:
        unknown = {"changed_from": None, "changed_until": None}
        connection.execute(sa.update(OutboxRow).values(unknown))
    assert changes(story, seen)["reset"] is True


def test_a_reader_waits_for_a_change(story: Story) -> None:
    seen = version(story)
    found: list[Any] = []
    reader = Thread(target=lambda: found.append(changes(story, seen, "&wait=30")))
    reader.start()
    book(story)
    story.relay.flush()
    story.runtime.news.hint()
    reader.join(30)
    assert found[0]["changes"] == [TODAY]


@pytest.mark.parametrize("after", ["x", "-1", "1.", "1.xyz", "1" * 19, "1.0123456g"])
def test_rejects_what_is_no_version(story: Story, after: str) -> None:
    problem = story.problem(400, "GET", f"{PATH}?after={after}", token=ALICE)
    assert problem["errors"][0]["parameter"] == "after"


def window(first: int, last: int) -> Window:
    day = datetime(2030, 1, 1, tzinfo=UTC)
    return Window(day + timedelta(days=first), day + timedelta(days=last))


def test_windows_that_touch_are_one_and_the_smallest_gaps_are_closed() -> None:
    windows = [window(9, 10), window(0, 2), window(2, 3), window(4, 5)]
    assert merged(windows, 3) == [window(0, 3), window(4, 5), window(9, 10)]
    assert merged(windows, 2) == [window(0, 5), window(9, 10)]
    assert merged(windows, 1) == [window(0, 10)]
    assert merged([], 5) == []
