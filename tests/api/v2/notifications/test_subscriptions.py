"""/v2/subscriptions: answers, access, limits and where a subscription resumes."""

import threading
from typing import Any

import pytest

from tests.conftest import MakeStory
from tests.support.outbox_rows import write_many
from tests.support.receiver import SECRET
from tests.support.service import Story

PATH = "/v2/subscriptions"
URL = "https://example.org/hook"
ALICE, BOB, READER = "alice:lab", "bob:office", "rita:lab:reader"


def subscribe(story: Story, token: str | None = ALICE, **fields: Any) -> dict[str, Any]:
    body = {"url": URL, "secret": SECRET, **fields}
    return dict(story.ok("POST", PATH, body, token=token))


def test_a_subscription_is_created_shown_listed_and_changed(story: Story) -> None:
    answer = story.call("POST", PATH, {"url": URL, "secret": SECRET}, token=ALICE)
    assert answer.status_code == 201
    created = answer.get_json()
    path = f"{PATH}/{created['id']}"
    assert answer.headers["Location"] == path
    assert {key: created[key] for key in created if key not in {"id", "created_at"}} == {
        "project_id": "lab",
        "user_id": "alice",
        "kind": "webhook",
        "url": URL,
        "address": None,
        "format": "cloudevents",
        "frequency": "immediate",
        "time_zone": "UTC",
        "confirmed_at": None,
        "event_types": [],
        "lease_id": None,
        "resource_type": None,
        "all_projects": False,
        "before_start_leads": [],
        "status": "active",
        "reason": None,
        "after": 0,
        "delivered_at": None,
        "updated_at": None,
        "dead_letters": 0,
    }
    assert story.ok("GET", path, token=ALICE) == created
    assert story.ok("GET", PATH, token=ALICE) == {"subscriptions": [created], "next": None}
    filtered = {"event_types": ["lease.*"], "lease_id": "one"}
    changed = story.ok("PATCH", path, filtered, token=ALICE)
    assert changed == {**created, **filtered, "updated_at": changed["updated_at"]}
    change = {"resource_type": "physical:host", "lease_id": None, "url": f"{URL}/2"}
    again = story.ok("PATCH", path, change, token=ALICE)
    assert again == {**changed, **change, "updated_at": again["updated_at"]}
    for url in ("http://example.org/", "https://127.0.0.1/"):
        problem = story.problem(400, "POST", PATH, {"url": url, "secret": SECRET})
        assert problem["errors"][0]["pointer"] == "#/url"


def test_the_secret_is_in_no_answer_and_no_log(
    story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    bare = SECRET.removeprefix("whsec_")
    body = {"url": URL, "secret": SECRET, "what": 1}
    texts = [story.call("POST", PATH, body, token=ALICE).get_data(as_text=True)]
    path = f"{PATH}/{subscribe(story)['id']}"
    for method, target, sent in (
        ("GET", PATH, None),
        ("PATCH", path, {"secret": SECRET}),
        ("PATCH", path, {"secret": f"{SECRET}!"}),
        ("POST", PATH, {"url": "x", "secret": SECRET[:-1]}),
    ):
        texts.append(story.call(method, target, sent, token=ALICE).get_data(as_text=True))
    assert not any(bare[:-1] in text for text in [*texts, caplog.text])


def test_a_subscription_of_another_project_does_not_exist(story: Story) -> None:
    created = subscribe(story)
    path = f"{PATH}/{created['id']}"
    assert story.ok("GET", PATH, token=BOB)["subscriptions"] == []
    for method, target, body in (
        ("GET", path, None),
        ("PATCH", path, {"status": "suspended"}),
        ("DELETE", path, None),
        ("GET", f"{path}/dead-letters", None),
        ("POST", f"{path}/redeliver", {}),
    ):
        story.problem(404, method, target, body, token=BOB)
        assert story.call(method, target, body, token=READER).status_code in {403, 404}
    story.problem(403, "GET", f"{PATH}?all_projects=true", token=ALICE)
    assert story.ok("GET", f"{PATH}?all_projects=true")["subscriptions"] == [created]
    assert story.ok("GET", path) == created


def test_only_readers_of_all_projects_find_a_subscription_to_all_projects(story: Story) -> None:
    created = subscribe(story, "root:lab:admin", all_projects=True)
    mine = subscribe(story)
    path = f"{PATH}/{created['id']}"
    assert story.ok("GET", f"{PATH}?limit=1", token=ALICE) == {
        "subscriptions": [mine],
        "next": None,
    }
    for method, target, body in (
        ("GET", path, None),
        ("PATCH", path, {"url": f"{URL}/alice", "secret": SECRET, "after": 0}),
        ("DELETE", path, None),
        ("GET", f"{path}/dead-letters", None),
        ("POST", f"{path}/redeliver", {}),
    ):
        story.problem(404, method, target, body, token=ALICE)
    assert story.ok("GET", path) == created
    assert story.ok("GET", PATH, token="eve:lab:admin")["subscriptions"] == [created, mine]


def test_pages_contain_every_subscription_once(story_everywhere: Story) -> None:
    story = story_everywhere
    created = [subscribe(story, f"user:project-{number % 3}")["id"] for number in range(7)]
    path, seen = f"{PATH}?all_projects=true&limit=3", []
    while path:
        page = story.ok("GET", path)
        seen += [subscription["id"] for subscription in page["subscriptions"]]
        path = page["next"]
    assert sorted(seen) == sorted(created)


def test_concurrent_requests_do_not_exceed_the_limit_of_a_project(
    make_story_everywhere: MakeStory,
) -> None:
    story = make_story_everywhere(notifications__subscriptions_per_project=3)
    body = {"url": URL, "secret": SECRET}
    clients = [threading.Thread(target=lambda: story.call("POST", PATH, body)) for _ in range(8)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    found = story.ok("GET", PATH)["subscriptions"]
    assert len(found) == 3
    assert story.problem(403, "POST", PATH, body)["code"] == "limit_exceeded"
    story.call("DELETE", f"{PATH}/{found[1]['id']}")
    subscribe(story, None)
    subscribe(story, BOB)


def test_a_subscription_whose_next_notification_was_removed_must_say_where_to_resume(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    late, unconcerned = subscribe(story, None), subscribe(story, ALICE)
    path, other = (f"{PATH}/{created['id']}" for created in (late, unconcerned))
    story.ok("PATCH", path, {"status": "suspended"})
    story.ok("PATCH", other, {"status": "suspended"}, token=ALICE)
    write_many(story, 5)
    story.relay.flush()
    story.clock.advance(91 * 86400)
    story.dispatcher.upkeep.tidy()
    assert story.problem(410, "PATCH", path, {"status": "active"})["oldest"] == 6
    assert story.problem(410, "POST", PATH, {"url": URL, "secret": SECRET, "after": 4})
    assert story.ok("GET", path)["status"] == "suspended"
    assert story.ok("PATCH", path, {"status": "active", "after": 5})["after"] == 5
    assert story.ok("PATCH", other, {"status": "active"}, token=ALICE)["after"] == 5
