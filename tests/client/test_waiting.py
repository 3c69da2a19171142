"""Waiting for a lease, and following notifications, while the service and the cloud fail."""

import datetime as dt
import socket
from typing import Any

import pytest

from climate import client as climate
from climate.client import Client, Progress, hosts, waiting
from climate.client.commands.leases import manage as lease_commands
from tests.client.conftest import Climate
from tests.client.test_client import HOUR, LATER, unreliable
from tests.conftest import NOON, MakeStory
from tests.manager.provisioning.conftest import OPTIONS
from tests.support.failing_cloud import break_cloud
from tests.support.loopback import served
from tests.support.outbox_rows import publish
from tests.support.provisioners import plan, preparations, report
from tests.support.service import Story
from tests.support.waiting import rules, settle


def test_waits_for_the_start_and_says_when_it_is(client: Client, story: Story) -> None:
    lease = client.leases.create("mine", reservations=[climate.hosts()], **LATER)
    seen: list[str] = []

    def progress(state: Progress) -> None:
        seen.append(str(state))
        if len(seen) == 1:
            story.at(60)
            story.relay.flush()

    assert client.leases.wait_until_active(lease.id, progress=progress).status == "ACTIVE"
    assert seen == ["PENDING: starts at 2030-01-15T13:00:00+00:00", "ACTIVE"]


def test_shows_the_place_of_a_lease_in_the_wait_list(client: Client, story: Story) -> None:
    rules(story, promises=1)
    asked: dict[str, Any] = {
        "reservations": [climate.hosts(4)],
        "duration": HOUR,
        "start": "asap",
    }
    first = client.leases.create("first", wait={}, **asked)
    client.leases.create("second", wait={}, **asked)
    third = client.leases.create("third", wait={}, **asked)
    settle(story)
    seen: list[str] = []

    def progress(state: Progress) -> None:
        seen.append(str(state))
        if len(seen) == 1:
            story.at(10)
            client.leases.end(first.id)
        elif len(seen) == 2:
            story.at(60)
        settle(story)
        story.relay.flush()

    assert client.leases.wait_until_active(third.id, progress=progress).status == "ACTIVE"
    assert seen == [
        "WAITING: position 2 in the wait list, expected start 2030-01-15T14:00:00+00:00",
        "PENDING: position 1 in the wait list, promised start 2030-01-15T13:10:00+00:00",
        "ACTIVE",
    ]


def test_names_the_hosts_for_which_the_start_waits(make_story: MakeStory) -> None:
    story = make_story(**OPTIONS)
    story.register(2)
    with served(story) as port:
        client = climate.connect(auth_type="none", endpoint=f"http://127.0.0.1:{port}", environ={})
        lease = client.leases.create(
            "mine", reservations=[climate.hosts(2)], start_when="ready", **LATER
        )
        story.at(55)
        plan(story)
        tasks = preparations(story, f"lease={lease.id}")
        story.at(5)
        seen: list[tuple[str, ...]] = []

        def progress(state: Progress) -> None:
            seen.append(state.hosts)
            if len(seen) <= len(tasks):
                report(story, tasks[len(seen) - 1], "accepted")
                report(story, tasks[len(seen) - 1], "ready")
                story.run()
                story.relay.flush()

        client.leases.wait_until_active(lease.id, progress=progress)
    assert [len(hosts) for hosts in seen] == [2, 1, 0]


def test_a_start_that_fails_ends_the_wait_with_the_reason(client: Client, story: Story) -> None:
    lease = client.leases.create("mine", reservations=[climate.hosts()], **LATER)
    break_cloud(story, "sim-1", "sim-2", "sim-3", "sim-4")
    story.until(NOON + HOUR + dt.timedelta(minutes=5))
    story.relay.flush()
    with pytest.raises(climate.WaitFailed, match=r"could not start: .* is broken\. climate tries"):
        client.leases.wait_until_active(lease.id)


def test_a_lease_that_is_over_or_deleted_does_not_start(client: Client, story: Story) -> None:
    lease = client.leases.create("mine", reservations=[climate.hosts()], start="now", duration=60)
    story.at(2)
    with pytest.raises(climate.WaitFailed, match="has ended"):
        client.leases.wait_until_active(lease.id)
    client.leases.delete(lease.id)
    with pytest.raises(climate.WaitFailed, match="is deleted"):
        client.leases.wait_until_active(lease.id)
    assert client.leases.wait_until_over(lease.id) is None


def test_a_wait_ends_at_its_time_limit(client: Client) -> None:
    lease = client.leases.create("mine", reservations=[climate.hosts()], **LATER)
    with pytest.raises(climate.WaitTimedOut, match=r"time limit is over, and lease .* is PENDING"):
        client.leases.wait_until_active(lease.id, timeout=0)


def test_a_wait_ends_at_its_time_limit_although_the_service_hangs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        hanging = climate.connect(auth_type="none", endpoint=url, environ={})
        with pytest.raises(climate.WaitTimedOut):
            hanging.leases.wait_until_active("a lease", timeout=0.2)


def test_the_time_limit_of_the_command_covers_finding_the_lease(
    climate: Climate, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.leases.create("mine", reservations=[hosts()], **LATER)
    clock = iter([0.0, 3600.0])
    monkeypatch.setattr(lease_commands, "monotonic", lambda: next(clock))
    late = climate("lease", "wait", "mine", "--timeout", "1h")
    assert (late.code, "The time limit is over" in late.errors) == (1, True)
    assert "is PENDING" in late.errors
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OS_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        clock = iter([0.0])
        hanging = climate("lease", "wait", "mine", "--timeout", "1s")
    assert "The time limit is over, and lease mine could not be read." in hanging.errors


@pytest.mark.parametrize(("goal", "minutes"), [("active", 60), ("ended", 120)])
def test_a_wait_shows_its_progress_unless_the_user_wants_silence(
    climate: Climate, client: Client, story: Story, goal: str, minutes: int
) -> None:
    client.leases.create("mine", reservations=[hosts()], **LATER)
    story.at(minutes)
    wait = ("lease", "wait", "mine", "--for", goal, "-f", "value", "-c", "name")
    shown, quiet = climate(*wait), climate("-q", *wait)
    assert (shown.output, shown.errors != "") == ("mine\n", True)
    assert (quiet.output, quiet.errors) == ("mine\n", "")


def test_a_wait_survives_a_service_that_is_away(url: str, client: Client, story: Story) -> None:
    lease = client.leases.create("mine", reservations=[climate.hosts()], start="now", duration=HOUR)
    story.run()
    problems: list[object] = []
    lossy = unreliable(url, "GET", 6)
    active = lossy.leases.wait_until_active(
        lease.id, progress=lambda state: problems.append(state.problem)
    )
    assert active.status == "ACTIVE"
    assert any(isinstance(each, climate.ServiceUnreachable) for each in problems)


def test_without_a_place_for_a_long_poll_a_wait_asks_again(
    make_story: MakeStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = make_story(notifications__followers=1)
    story.register(1)
    story.runtime.latest.place("admin")
    monkeypatch.setattr(waiting, "_PAUSE", 0.001)
    with served(story) as port:
        client = climate.connect(auth_type="none", endpoint=f"http://127.0.0.1:{port}", environ={})
        lease = client.leases.create("mine", reservations=[climate.hosts()], **LATER)
        states: list[Progress] = []

        def progress(state: Progress) -> None:
            states.append(state)
            story.at(60)

        client.leases.wait_until_active(lease.id, progress=progress)
    assert [state.lease.status for state in states if state.lease] == ["PENDING", "ACTIVE"]


def test_follows_notifications_without_loss_through_disconnects(url: str, story: Story) -> None:
    publish(story, "one", "two", "three")
    errors: list[str] = []
    lossy = unreliable(url, "GET", 5)
    found = lossy.notifications.follow(after=0, on_retry=lambda error: errors.append(str(error)))
    assert [next(found).event_type for _ in range(3)] == ["one", "two", "three"]
    assert len(errors) == 5


def test_the_command_prints_a_line_or_json_for_each_notification(
    climate: Climate, story: Story
) -> None:
    made = story.reserve()
    story.at(60)
    story.relay.flush()
    follow = ("notification", "follow", "--after", "0", "--lease", made["id"], "--count", "2")
    lines = climate(*follow, "--event-type", "lease.event.start_lease", "--count", "1").output
    assert lines.startswith("     ")
    assert "2030-01-15 14:00:00 CET  lease.event.start_lease  lease  (ACTIVE)  sim-" in lines
    first, second = climate(*follow, "-f", "json").output.splitlines()
    assert '"event_type": "lease.create"' in first
    assert second.startswith('{"seq": 2')
