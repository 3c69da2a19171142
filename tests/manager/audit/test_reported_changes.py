"""Heat reports what users change in it, and climate looks at once."""

import logging
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from climate.core.errors import IdentityUnavailable
from climate.manager.audit.changes_in_cloud import follow_changes
from climate.manager.audit.reported_changes import ReportedChanges
from climate.manager.process.runtime import Runtime
from climate.plugins.stacks.cloud import Stack
from climate.plugins.stacks.template import Source
from tests.conftest import MakeStory
from tests.support.bodies import effect_names
from tests.support.service import Story
from tests.support.stack_leases import (
    advance,
    amounts,
    cloud_of,
    create,
    group,
    live,
    prepare_story,
    running,
    server,
    shown,
    stack,
    stacks,
    template,
    update,
)

END = "orchestration.stack.update.end"


@pytest.fixture
def story(make_story: MakeStory) -> Story:
    return prepare_story(make_story)


@pytest.fixture
def reported(story: Story) -> ReportedChanges:
    """Return the task; its thread does not run, so tests call ``look``."""
    return ReportedChanges(story.runtime)


@pytest.fixture
def lookups(story: Story, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the ids of the stacks that climate has looked up in the cloud since then."""
    cloud = cloud_of(story)
    find, done = cloud.find, []

    def note(project_id: str, stack_id: str) -> Stack | None:
        done.append(stack_id)
        found: Stack | None = find(project_id, stack_id)
        return found

    monkeypatch.setattr(cloud, "find", note)
    return done


def report(reported: ReportedChanges, stack: Stack, times: int = 1) -> None:
    for _ in range(times):
        reported.hear(END, {"stack_identity": stack.id})


def reserved(story: Story, lease: dict[str, Any]) -> dict[str, int]:
    advance(story, 1 / 60)
    return amounts(live(shown(story, lease)))


def test_a_reported_change_is_followed_by_one_look_at_this_stack(
    story: Story, reported: ReportedChanges, lookups: list[str]
) -> None:
    mine, other = (
        stack(template(workers=group(2)), stack_name="mine"),
        stack(template(web=server())),
    )
    lease = create(story, mine, other)
    advance(story, 60)
    [present] = [each for each in stacks(story) if each.name == "mine"]
    cloud_of(story).update(None, present, Source(template(workers=group(5))), ["mine"])
    lookups.clear()
    report(reported, present, times=7)
    reported.look()
    reported.look()
    assert lookups == [present.id]
    assert reserved(story, lease) == {
        "servers of flavor m1.large": 5,
        "servers of flavor m1.small": 1,
    }


def test_a_stack_that_climate_has_not_leased_costs_no_request(
    story: Story, reported: ReportedChanges, lookups: list[str]
) -> None:
    running(story)
    [present] = stacks(story)
    lookups.clear()
    for stack_id in ("nested", "x' OR '1'='1", present.id[:-1], present.id.upper(), "*"):
        reported.hear(END, {"stack_identity": stack_id, "tenant_id": present.project_id})
    reported.look()
    assert lookups == []


def test_what_is_busy_is_looked_at_again_for_a_while(
    story: Story, reported: ReportedChanges, monkeypatch: pytest.MonkeyPatch, lookups: list[str]
) -> None:
    """Heat reports the end of an update before it stores the end."""
    lease = running(story)
    present = update(story, template(workers=group(5)))
    cloud = cloud_of(story)
    find = cloud.find
    busy = replace(present, status="UPDATE_IN_PROGRESS")
    lookups.clear()
    with monkeypatch.context() as patch:
        patch.setattr(cloud, "find", lambda *asked: find(*asked) and busy)
        report(reported, present)
        reported.look()
    reported.look()
    assert reserved(story, lease) == {"servers of flavor m1.large": 5}
    monkeypatch.setattr(cloud, "find", lambda *asked: find(*asked) and busy)
    lookups.clear()
    report(reported, present)
    for _ in range(100):
        reported.look()
    assert 10 < len(lookups) < 50


def test_a_service_that_does_not_answer_is_left_to_the_loop(
    story: Story, reported: ReportedChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(story)
    present = update(story, template(workers=group(5)))
    asked = []

    def fail(*arguments: object) -> None:
        asked.append(arguments)
        raise IdentityUnavailable("no answer")

    monkeypatch.setattr(cloud_of(story), "find", fail)
    report(reported, present)
    for _ in range(10):
        reported.look()
    assert len(asked) == 1


def test_a_change_during_an_update_of_the_lease_is_followed_after_it(
    story: Story, reported: ReportedChanges
) -> None:
    lease = running(story)
    update(story, template(workers=group(5)))
    follow_changes(story.runtime)  # and no manager has deployed it yet
    report(reported, update(story, template(workers=group(6))))
    reported.look()
    assert reserved(story, lease) == {"servers of flavor m1.large": 5}
    reported.look()
    assert reserved(story, lease) == {"servers of flavor m1.large": 6}


def test_a_failure_of_the_database_loses_no_report(
    story: Story, reported: ReportedChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = running(story)
    report(reported, update(story, template(workers=group(5))))
    with monkeypatch.context() as patch:
        patch.delattr(type(story.runtime.database), "read")
        with pytest.raises(AttributeError):
            reported.look()
    reported.look()
    assert reserved(story, lease) == {"servers of flavor m1.large": 5}


def test_hostile_notifications_change_nothing_and_are_logged_once(
    story: Story, reported: ReportedChanges, caplog: pytest.LogCaptureFixture, lookups: list[str]
) -> None:
    lease = running(story)
    [present] = stacks(story)
    before, effects = shown(story, lease), effect_names(story)
    caplog.set_level(logging.INFO)
    logging.root.addHandler(caplog.handler)
    invalid: tuple[Any, ...] = (None, [], "text", {"stack_identity": ["x"]})
    for payload in invalid * 3:
        reported.hear(END, payload)
    lies = {
        "stack_identity": present.id,
        "state": "DELETE_COMPLETE",
        "tenant_id": "mine",
        "tags": [],
    }
    reported.hear(END, lies)
    reported.look()
    story.run()
    assert (shown(story, lease), effect_names(story)) == (before, effects)
    assert [text for text in caplog.messages if "ignored" in text] == [
        f"such notifications are ignored: {END} has no valid stack_identity"
    ]


def test_a_flood_of_reports_does_not_fill_the_memory(
    story: Story, reported: ReportedChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Collection[str]] = []

    def follow(_runtime: Runtime, stack_ids: Collection[str]) -> list[str]:
        asked.append(stack_ids)
        return []

    monkeypatch.setattr("climate.manager.audit.reported_changes.follow_changes", follow)
    for number in range(5000):
        reported.hear(END, {"stack_identity": f"stack-{number}"})
    reported.look()
    assert [len(stack_ids) for stack_ids in asked] == [1000]
