"""Idempotency-Key: a request that is sent again makes no second lease, and is answered the same."""

from typing import Any

import pytest
import sqlalchemy as sa
from werkzeug.test import TestResponse

from climate.db.tables import IdempotencyKeyRow
from climate.manager import leases
from tests.conftest import MakeStory
from tests.support.service import Story, hosts, problem

LEASES = "/v2/leases"
ALICE, CAROL, EVE = "alice:lab", "carol:lab", "alice:other"


def send(story: Story, body: Any, key: str = "key-1", token: str = ALICE) -> TestResponse:
    """Ask for a lease under a key."""
    return story.call("POST", LEASES, body, token=token, headers={"Idempotency-Key": key})


def count(story: Story) -> int:
    """Return how many leases there are."""
    return len(story.ok("GET", f"{LEASES}?all_projects=true")["leases"])


def keys(story: Story) -> int:
    """Return how many keys are remembered."""
    with story.runtime.database.read() as session:
        return session.scalar(sa.select(sa.func.count()).select_from(IdempotencyKeyRow)) or 0


def test_the_same_request_has_the_same_answer(story_everywhere: Story) -> None:
    story = story_everywhere
    body = story.asking(reservations=[hosts(4, 4)])
    first = send(story, body)
    again = send(story, dict(reversed(body.items())))
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.get_data() == first.get_data()
    for name in ("Location", "ETag"):
        assert again.headers[name] == first.headers[name]
    assert count(story) == 1
    assert story.told(first.get_json()["id"]) == ["lease.create"]


def test_a_repetition_that_comes_too_late_finds_what_was_made_meanwhile(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, genuine, answers = story.asking(0, 60), leases.draft, []

    def draft(*given: Any) -> Any:
        monkeypatch.setattr(leases, "draft", genuine)
        story.clock.step(-60)
        answers.append(send(story, body))
        story.clock.step(60)
        return genuine(*given)

    monkeypatch.setattr(leases, "draft", draft)
    story.clock.advance(61)
    again = send(story, body)
    assert again.status_code == 201
    assert again.get_data() == answers[0].get_data()
    assert count(story) == 1


def test_whatever_became_of_the_lease(story_everywhere: Story) -> None:
    story = story_everywhere
    body = story.asking()
    first = send(story, body)
    path = first.headers["Location"]
    story.ok("PATCH", path, {"name": "renamed"})
    assert send(story, body).get_data() == first.get_data()
    story.clock.advance(3600 * 3)  # what was the future is the past by now
    assert send(story, body).get_data() == first.get_data()
    story.ok("DELETE", path)
    assert send(story, body).get_data() == first.get_data()
    assert story.call("GET", path).status_code in {200, 404}


def test_a_key_that_stands_for_another_request_is_refused(story_everywhere: Story) -> None:
    story = story_everywhere
    send(story, story.asking())
    found = problem(send(story, story.asking(name="other")), 422)
    assert found["code"] == "idempotency_key_reused"
    assert count(story) == 1


def test_keys_are_a_users_own_in_each_project(story_everywhere: Story) -> None:
    story = story_everywhere
    body = story.asking()
    made = [send(story, body, token=token).get_json() for token in (ALICE, CAROL, EVE)]
    assert len({lease["id"] for lease in made}) == 3
    assert [send(story, body, token=t).get_json() for t in (ALICE, CAROL, EVE)] == made


def test_keys_are_told_apart_exactly(story_everywhere: Story) -> None:
    story = story_everywhere
    body = story.asking(reservations=[])
    every = ["k", "K", "k.", '"k"', "k" * 255]
    assert len({send(story, body, key).get_json()["id"] for key in every}) == len(every)


def test_without_a_key_each_request_is_its_own(story: Story) -> None:
    body = story.asking()
    assert story.ok("POST", LEASES, body)["id"] != story.ok("POST", LEASES, body)["id"]
    assert keys(story) == 0


def test_a_refusal_is_not_remembered(story_everywhere: Story) -> None:
    story = story_everywhere
    body = story.asking(reservations=[hosts(4, 4)])
    taken = story.ok("POST", LEASES, body)
    assert problem(send(story, body), 409)["code"] == "not_enough_resources"
    assert problem(send(story, {**body, "nmae": 1}), 400)
    assert keys(story) == 0
    story.ok("DELETE", f"{LEASES}/{taken['id']}")
    assert send(story, body).status_code == 201


@pytest.mark.parametrize("key", ["", "k" * 256, "ä", "a\tb"])
def test_a_key_that_no_database_could_keep_is_refused(story: Story, key: str) -> None:
    found = problem(send(story, story.asking(), key), 400)
    assert found["errors"][0]["header"] == "Idempotency-Key"


def test_who_may_not_make_leases_gets_no_answer_from_memory(story: Story) -> None:
    send(story, story.asking())
    problem(send(story, story.asking(), token=f"{ALICE}:reader"), 403)


def test_a_reply_that_was_lost_is_given_again_by_another_process(
    story_everywhere: Story, tmp_path: Any
) -> None:
    """The answer is in the database when the lease is: whoever is asked next knows it."""
    story = story_everywhere
    body = story.asking()
    hint, story.runtime.wakeup.hint = story.runtime.wakeup.hint, _die
    assert send(story, body).status_code == 500  # the process dies before it has answered
    story.runtime.wakeup.hint = hint
    other = Story(story.conf, story.runtime, story.clock)
    answer = send(other, body)
    assert answer.status_code == 201
    assert other.ok("GET", answer.headers["Location"])["id"] == answer.get_json()["id"]
    assert count(story) == 1


def _die() -> None:
    raise RuntimeError("killed")


def test_managers_forget_keys_when_their_time_is_over(make_story: MakeStory) -> None:
    story = make_story(api__idempotency_hours=2)
    body = story.asking(reservations=[])
    first = send(story, body)
    story.clock.advance(2 * 3600)
    story.dispatcher.tidy()
    assert send(story, body).get_data() == first.get_data()
    story.clock.advance(1)
    story.dispatcher.tidy()
    assert keys(story) == 0
    assert problem(send(story, body), 400)["code"] == "invalid_date"
