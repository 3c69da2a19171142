"""Idempotency-Key: a repeated request creates no second lease and gets the same answer."""

from typing import Any

import pytest
import sqlalchemy as sa
from werkzeug.test import TestResponse

from climate.api.v2.leases import views
from climate.db.tables.leases import IdempotencyKeyRow
from climate.manager.leases import create
from tests.conftest import MakeStory
from tests.support.service import Story, hosts, problem
from tests.support.waiting import waiting

LEASES = "/v2/leases"
RULES = ['physical:host ["==", "$$vcpus", "16"]: 1200, 300']
ALICE, CAROL, EVE = "alice:lab", "carol:lab", "alice:other"


def send(story: Story, body: Any, key: str = "key-1", token: str = ALICE) -> TestResponse:
    return story.call("POST", LEASES, body, token=token, headers={"Idempotency-Key": key})


def count_leases(story: Story) -> int:
    return len(story.ok("GET", f"{LEASES}?all_projects=true")["leases"])


def count_keys(story: Story) -> int:
    with story.runtime.database.read() as session:
        return session.scalar(sa.select(sa.func.count()).select_from(IdempotencyKeyRow)) or 0


def test_a_repeated_request_gets_the_first_answer_whatever_became_of_the_lease(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    body = story.asking(reservations=[hosts(4, 4)])
    first = send(story, body)
    again = send(story, dict(reversed(body.items())))
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.get_data() == first.get_data()
    for name in ("Location", "ETag"):
        assert again.headers[name] == first.headers[name]
    assert count_leases(story) == 1
    assert story.event_types(first.get_json()["id"]) == ["lease.create"]
    path = first.headers["Location"]
    story.ok("PATCH", path, {"name": "renamed"})
    assert send(story, body).get_data() == first.get_data()
    story.clock.advance(3600 * 3)  # the requested start has passed
    assert send(story, body).get_data() == first.get_data()
    story.ok("DELETE", path)
    assert send(story, body).get_data() == first.get_data()
    assert story.call("GET", path).status_code in {200, 404}
    found = problem(send(story, {**body, "name": "other"}), 422)
    assert found["code"] == "idempotency_key_reused"
    assert problem(send(story, body, token=f"{ALICE}:reader"), 403)


def test_a_repetition_that_arrives_late_finds_the_lease_of_the_first(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, genuine, answers = story.asking(0, 60), create.draft, []

    def draft(*arguments: Any) -> Any:
        monkeypatch.setattr(create, "draft", genuine)
        story.clock.step(-60)
        answers.append(send(story, body))
        story.clock.step(60)
        return genuine(*arguments)

    monkeypatch.setattr(create, "draft", draft)
    story.clock.advance(61)
    again = send(story, body)
    assert again.status_code == 201
    assert again.get_data() == answers[0].get_data()
    assert count_leases(story) == 1


def test_a_key_belongs_to_a_user_in_a_project_and_is_compared_exactly(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    body = story.asking()
    tokens = (ALICE, CAROL, EVE)
    created = [send(story, body, token=token).get_json() for token in tokens]
    assert len({lease["id"] for lease in created}) == 3
    assert [send(story, body, token=token).get_json() for token in tokens] == created
    keys = ["k", "K", "k.", "k" * 255]
    body = story.asking(180, 240)
    assert len({send(story, body, key).get_json()["id"] for key in keys}) == len(keys)


def test_a_rejection_is_not_remembered(story_everywhere: Story) -> None:
    story = story_everywhere
    body = story.asking(reservations=[hosts(4, 4)])
    taken = story.ok("POST", LEASES, body)
    assert problem(send(story, body), 409)["code"] == "not_enough_resources"
    assert problem(send(story, {**body, "nmae": 1}), 400)
    assert count_keys(story) == 0
    story.ok("DELETE", f"{LEASES}/{taken['id']}")
    assert send(story, body).status_code == 201


def test_rejects_malformed_keys_and_needs_none(story: Story) -> None:
    for key in ("", "k" * 256, "ä", "a\tb"):
        found = problem(send(story, story.asking(), key), 400)
        assert found["errors"][0]["header"] == "Idempotency-Key"
    body = story.asking()
    assert story.ok("POST", LEASES, body)["id"] != story.ok("POST", LEASES, body)["id"]
    assert count_keys(story) == 0


def test_another_process_repeats_an_answer_that_was_lost(story_everywhere: Story) -> None:
    """The answer is stored in the transaction that creates the lease."""

    def die() -> None:
        raise RuntimeError("killed")

    story = story_everywhere
    body = story.asking()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(story.runtime.wakeup, "hint", die)
        assert send(story, body).status_code == 500  # the process dies before it answers
    other = Story(story.conf, story.runtime, story.clock)
    answer = send(other, body)
    assert answer.status_code == 201
    assert other.ok("GET", answer.headers["Location"])["id"] == answer.get_json()["id"]
    assert count_leases(story) == 1


def repeat(story: Story, body: Any) -> dict[str, Any]:
    """Send a request twice, and return its lease: the answers are equal, and the ETag is valid."""
    first, again = send(story, body), send(story, body)
    assert again.get_data() == first.get_data()
    assert again.headers["ETag"] == first.headers["ETag"]
    lease: dict[str, Any] = first.get_json()
    headers = {"If-Match": again.headers["ETag"]}
    path = f"{LEASES}/{lease['id']}"
    assert story.call("GET", path, token=ALICE, headers=headers).status_code == 200
    return lease


def test_a_repeated_request_to_wait_gets_the_place_of_the_first_answer(story: Story) -> None:
    story.ok("POST", LEASES, story.asking(0, 60, reservations=[hosts(4, 4)]))
    lease = repeat(story, waiting(1, 60))
    assert (lease["status"], lease["waiting"]["position"]) == ("PENDING", 1)


def test_a_repetition_finds_a_waiting_lease_whose_first_request_was_killed(story: Story) -> None:
    def die(*_: object) -> None:
        raise RuntimeError("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(views, "replace_answer", die)
        assert send(story, waiting(1, 60)).status_code == 500
    answer = send(story, waiting(1, 60))
    assert (answer.status_code, answer.get_json()["status"]) == (201, "WAITING")
    assert story.ok("GET", answer.headers["Location"])["status"] == "PENDING"
    assert count_leases(story) == 1


def test_a_repeated_request_gets_the_reminders_of_its_hosts(make_story: MakeStory) -> None:
    story = make_story(manager__reminder_rules=RULES)
    story.register(1)
    lease = repeat(story, story.asking(60, 120))
    times = [event["at"] for event in lease["events"] if event["type"] == "before_start_lease"]
    assert times == [story.moment(40), story.moment(55)]


def test_managers_remove_keys_after_their_retention(make_story: MakeStory) -> None:
    story = make_story(api__idempotency_hours=2)
    story.register(1)
    body = story.asking()
    first = send(story, body)
    story.clock.advance(2 * 3600)
    story.dispatcher.upkeep.tidy()
    assert send(story, body).get_data() == first.get_data()
    story.clock.advance(1)
    story.dispatcher.upkeep.tidy()
    assert count_keys(story) == 0
    assert problem(send(story, body), 400)["code"] == "invalid_date"
