"""Calendar feeds, read by another library."""

import logging
from typing import Any

import pytest
import vobject

from climate.api.v2.feeds import views
from tests.conftest import MakeStory
from tests.support.service import Story

ALICE, BOB = "alice:lab", "bob:office"


def feed(story: Story, scope: str, id_: str, token: str = ALICE) -> dict[str, Any]:
    return dict(story.ok("POST", "/v2/feeds", {"scope": scope, "id": id_}, token=token))


def entries(story: Story, url: str) -> list[Any]:
    answer = story.http.get(url)
    assert answer.status_code == 200, answer.get_data(as_text=True)
    assert answer.headers["Content-Type"] == "text/calendar; charset=utf-8"
    return list(vobject.readOne(answer.get_data(as_text=True)).contents.get("vevent", []))


def test_a_moved_lease_moves_in_the_feed_with_a_higher_sequence(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.ok("POST", "/v2/leases", story.asking(), token=ALICE)
    for scope, id_ in (
        ("lease", lease["id"]),
        ("project", "lab"),
        ("resource", story.hosts_of(lease["id"])[0]),
    ):
        [before] = entries(story, url := feed(story, scope, id_)["url"])
        story.ok("PATCH", f"/v2/leases/{lease['id']}", {"end": story.moment(180)}, token=ALICE)
        [after] = entries(story, url)
        assert after.uid.value == before.uid.value
        assert int(after.sequence.value) > int(before.sequence.value)
        assert f"{after.dtend.value:%Y-%m-%dT%H:%M:%SZ}" == story.moment(180)


def test_a_deleted_lease_is_cancelled_for_a_month(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.ok("POST", "/v2/leases", story.asking(), token=ALICE)
    targets = (
        ("lease", lease["id"]),
        ("project", "lab"),
        ("resource", story.hosts_of(lease["id"])[0]),
    )
    urls = [feed(story, *target)["url"] for target in targets]
    before = [entries(story, url)[0] for url in urls]
    story.ok("DELETE", f"/v2/leases/{lease['id']}", token=ALICE)
    for url, old in zip(urls, before, strict=True):
        [new] = entries(story, url)
        assert (new.uid.value, new.status.value) == (old.uid.value, "CANCELLED")
        assert int(new.sequence.value) > int(old.sequence.value)
    story.clock.advance(31 * 86400)
    story.dispatcher.upkeep.tidy()
    assert [entries(story, url) for url in urls[1:]] == [[], []]
    assert story.http.get(urls[0]).status_code == 404  # its lease cannot come back


def test_a_revoked_feed_and_an_unknown_one_get_the_same_answer(
    story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    created = feed(story, "project", "lab")
    secret = created["url"].rpartition("/")[2].removesuffix(".ics")
    assert entries(story, created["url"]) == []
    story.problem(404, "DELETE", f"/v2/feeds/{created['id']}", token=BOB)
    assert story.call("DELETE", f"/v2/feeds/{created['id']}", token=ALICE).status_code == 204
    answers = [story.http.get(path) for path in (created["url"], "/feeds/x.ics")]
    assert {(answer.status_code, answer.data) for answer in answers} == {(404, answers[0].data)}
    assert secret not in caplog.text


def test_only_its_maker_and_administrators_revoke_a_feed(story: Story) -> None:
    first, second = (feed(story, "project", "lab") for _ in range(2))
    listed = story.ok("GET", "/v2/feeds", token="carol:lab")["feeds"]
    assert {item["id"] for item in listed} == {first["id"], second["id"]}
    assert [item for item in listed if "url" in item] == []
    path = f"/v2/feeds/{first['id']}"
    refusals = {
        "carol:lab": (403, "forbidden"),  # another member
        "alice:lab:reader": (403, "forbidden"),  # the maker, who is not a member any more
        "alice:office": (404, "not_found"),  # the maker, signed in to another project
        BOB: (404, "not_found"),
    }
    for token, (status, code) in refusals.items():
        assert story.problem(status, "DELETE", path, token=token)["code"] == code
    assert entries(story, first["url"]) == []
    for item, token in ((first, ALICE), (second, "boss:ops:admin")):
        assert story.call("DELETE", f"/v2/feeds/{item['id']}", token=token).status_code == 204
        assert story.http.get(item["url"]).status_code == 404


def test_what_another_project_may_not_see_has_no_feed(story: Story) -> None:
    lease = story.ok("POST", "/v2/leases", story.asking(), token=ALICE)
    for scope, id_ in (("lease", lease["id"]), ("project", "lab"), ("resource", "99")):
        story.problem(404, "POST", "/v2/feeds", {"scope": scope, "id": id_}, token=BOB)
    [taken] = entries(story, feed(story, "resource", story.hosts_of(lease["id"])[0], BOB)["url"])
    assert taken.summary.value == "Taken"
    assert lease["id"] not in taken.serialize()
    assert story.ok("GET", "/v2/feeds", token=BOB)["feeds"][0].get("url") is None


def test_markup_and_controls_in_a_name_stay_text(story: Story) -> None:
    name = "<b>x</b>\r\nEND:VEVENT\u2028\x85,;\\"
    lease = story.ok("POST", "/v2/leases", story.asking(name=name), token=ALICE)
    [entry] = entries(story, feed(story, "lease", lease["id"])["url"])
    assert entry.summary.value == "<b>x</b>  END:VEVENT  ,;\\"


def test_an_unchanged_feed_is_not_sent_again(story: Story) -> None:
    lease = story.ok("POST", "/v2/leases", story.asking(), token=ALICE)
    path = f"/v2/leases/{lease['id']}/calendar.ics"
    first = story.call("GET", path, token=ALICE)
    assert first.headers["Cache-Control"] == "private, max-age=60"
    again = story.call("GET", path, token=ALICE, headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")
    story.problem(404, "GET", path, token=BOB)


def test_an_unchanged_feed_is_not_built_again(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = story.ok("POST", "/v2/leases", story.asking(), token=ALICE)
    url = feed(story, "project", "lab")["url"]
    known = {"If-None-Match": story.http.get(url).headers["ETag"]}
    with monkeypatch.context() as patch:
        patch.delattr(views, "render")
        answer = story.http.get(url, headers=known)
    assert (answer.status_code, answer.data) == (304, b"")
    story.ok("PATCH", f"/v2/leases/{lease['id']}", {"name": "other"}, token=ALICE)
    assert story.http.get(url, headers=known).status_code == 200


def test_a_project_has_a_maximum_number_of_feeds(make_story: MakeStory) -> None:
    story = make_story(notifications__feeds_per_project=1)
    feed(story, "project", "lab")
    refused = story.problem(
        403, "POST", "/v2/feeds", {"scope": "project", "id": "lab"}, token=ALICE
    )
    assert refused["code"] == "limit_exceeded"
    feed(story, "project", "office", BOB)


def test_an_operator_sees_the_names_on_a_resource(story: Story) -> None:
    lease = story.ok("POST", "/v2/leases", story.asking(name="mine"), token=ALICE)
    [host] = story.hosts_of(lease["id"])
    [entry] = entries(story, feed(story, "resource", host, "boss:ops:admin")["url"])
    assert entry.summary.value == "mine"
