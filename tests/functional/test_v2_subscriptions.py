"""``/v2/subscriptions``: who may have which, and what is refused."""

import threading
from typing import Any

import pytest

from tests.conftest import MakeStory
from tests.support.emitters import write_many
from tests.support.receiver import SECRET
from tests.support.service import Story

PATH = "/v2/subscriptions"
URL = "https://example.org/hook"
ALICE, BOB, READER = "alice:lab", "bob:office", "rita:lab:reader"


def subscribe(story: Story, token: str | None = ALICE, **fields: Any) -> dict[str, Any]:
    body = {"url": URL, "secret": SECRET, **fields}
    return dict(story.ok("POST", PATH, body, token=token))


def test_what_is_made_is_shown_but_for_the_secret(story_everywhere: Story) -> None:
    story = story_everywhere
    answer = story.call("POST", PATH, {"url": URL, "secret": SECRET}, token=ALICE)
    assert answer.status_code == 201
    made = answer.get_json()
    assert answer.headers["Location"] == f"{PATH}/{made['id']}"
    assert {name: value for name, value in made.items() if name not in {"id", "created_at"}} == {
        "project_id": "lab",
        "user_id": "alice",
        "url": URL,
        "event_types": [],
        "lease_id": None,
        "resource_type": None,
        "all_projects": False,
        "status": "active",
        "reason": None,
        "after": 0,
        "delivered_at": None,
        "updated_at": None,
        "dead_letters": 0,
    }
    assert story.ok("GET", f"{PATH}/{made['id']}", token=ALICE) == made
    assert story.ok("GET", PATH, token=ALICE) == {"subscriptions": [made], "next": None}


def test_a_change_names_what_is_to_change(story: Story) -> None:
    made = subscribe(story, event_types=["lease.*"], lease_id="one")
    change = {"resource_type": "physical:host", "lease_id": None, "url": f"{URL}/2"}
    changed = story.ok("PATCH", f"{PATH}/{made['id']}", change, token=ALICE)
    assert changed == {**made, **change, "updated_at": changed["updated_at"]}


def test_the_secret_is_in_no_answer_and_no_log(
    story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    bare = SECRET.removeprefix("whsec_")
    body = {"url": URL, "secret": SECRET, "what": 1}
    texts = [story.call("POST", PATH, body, token=ALICE).get_data(as_text=True)]
    made = subscribe(story)
    for method, path, sent in (
        ("GET", PATH, None),
        ("PATCH", f"{PATH}/{made['id']}", {"secret": SECRET}),
        ("PATCH", f"{PATH}/{made['id']}", {"secret": f"{SECRET}!"}),
        ("POST", PATH, {"url": "x", "secret": SECRET[:-1]}),
    ):
        texts.append(story.call(method, path, sent, token=ALICE).get_data(as_text=True))
    assert not any(bare[:-1] in text for text in [*texts, caplog.text])


def test_those_of_other_projects_do_not_exist(story: Story) -> None:
    made = subscribe(story)
    path = f"{PATH}/{made['id']}"
    assert story.ok("GET", PATH, token=BOB)["subscriptions"] == []
    for method, at, body in (
        ("GET", path, None),
        ("PATCH", path, {"status": "suspended"}),
        ("DELETE", path, None),
        ("GET", f"{path}/dead-letters", None),
        ("POST", f"{path}/redeliver", {}),
    ):
        story.problem(404, method, at, body, token=BOB)
        assert story.call(method, at, body, token=READER).status_code in {403, 404}
    story.problem(403, "GET", f"{PATH}?all_projects=true", token=ALICE)
    assert story.ok("GET", f"{PATH}?all_projects=true")["subscriptions"] == [made]
    assert story.ok("GET", path) == made


def test_all_of_them_are_listed_by_pages(story_everywhere: Story) -> None:
    story = story_everywhere
    made = [subscribe(story, f"user:project-{n % 3}")["id"] for n in range(7)]
    path, seen = f"{PATH}?all_projects=true&limit=3", []
    while path:
        page = story.ok("GET", path)
        seen += [one["id"] for one in page["subscriptions"]]
        path = page["next"]
    assert sorted(seen) == sorted(made)
    assert len(seen) == 7


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"url": "http://example.org/"}, "#/url"),
        ({"url": "https://127.0.0.1/"}, "#/url"),
        ({"url": 1}, "#/url"),
        ({"secret": "weak"}, "#/secret"),
        ({"event_types": ["a*b"]}, "#/event_types/0"),
        ({"event_types": ["a"] * 21}, "#/event_types"),
        ({"after": -1}, "#/after"),
        ({"after": 2**63}, "#/after"),
        ({"all_projects": "yes"}, "#/all_projects"),
        ({"lease_id": ""}, "#/lease_id"),
        ({"status": "suspended"}, "#/status"),
        ({"resource_type": 5}, "#/resource_type"),
    ],
)
def test_what_makes_no_sense_is_refused(story: Story, fields: dict[str, Any], pointer: str) -> None:
    body = {"url": URL, "secret": SECRET, **fields}
    assert story.problem(400, "POST", PATH, body)["errors"][0]["pointer"] == pointer


def test_a_project_has_so_many_and_no_more(make_story_everywhere: MakeStory) -> None:
    story = make_story_everywhere(notifications__subscriptions_per_project=3)
    clients = [threading.Thread(target=lambda: story.call("POST", PATH, body)) for _ in range(8)]
    body = {"url": URL, "secret": SECRET}
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


def test_one_that_wants_what_is_not_kept_must_say_where_to_go_on(story_everywhere: Story) -> None:
    story = story_everywhere
    late = subscribe(story, None)
    other = subscribe(story, ALICE)  # nothing there concerns it
    story.ok("PATCH", f"{PATH}/{late['id']}", {"status": "suspended"})
    story.ok("PATCH", f"{PATH}/{other['id']}", {"status": "suspended"}, token=ALICE)
    write_many(story, 5)
    story.relay.flush()
    story.clock.advance(91 * 86400)
    story.dispatcher.tidy()
    path = f"{PATH}/{late['id']}"
    assert story.problem(410, "PATCH", path, {"status": "active"})["oldest"] == 6
    assert story.problem(410, "POST", PATH, {"url": URL, "secret": SECRET, "after": 4})
    assert story.ok("GET", path)["status"] == "suspended"
    assert story.ok("PATCH", path, {"status": "active", "after": 5})["after"] == 5
    resumed = story.ok("PATCH", f"{PATH}/{other['id']}", {"status": "active"}, token=ALICE)
    assert resumed["after"] == 5
