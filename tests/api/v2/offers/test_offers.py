"""Offers hold capacity until a user accepts or deletes them, or until they expire."""

from typing import Any

import pytest

from climate.manager.audit.invariants import violations
from tests.conftest import MakeStory
from tests.support.rows import dump
from tests.support.service import Story, hosts

OFFERS = "/v2/offers"
ALL_HOSTS = [hosts(4, 4)]
MEMBER, READER, STRANGER = "ann:lab:member", "bob:lab:reader", "eve:other:member"


def offer(story: Story, *, token: str = MEMBER, **fields: Any) -> dict[str, Any]:
    """Make an offer of all hosts from one hour from now to two."""
    body = story.asking(reservations=ALL_HOSTS, **fields)
    made: dict[str, Any] = story.ok("POST", OFFERS, body, token=token)
    return made


def accept(story: Story, id_: str, *, token: str = MEMBER, key: str | None = None) -> Any:
    headers = {"Idempotency-Key": key} if key else {}
    return story.call("POST", f"{OFFERS}/{id_}/accept", token=token, headers=headers)


def test_an_offer_holds_capacity_and_becomes_a_lease_with_the_same_id(story: Story) -> None:
    made = offer(story, hold=120)
    assert made["expires_at"] == story.moment(2)
    assert "status" not in made
    refused = story.problem(409, "POST", "/v2/leases", story.asking(reservations=ALL_HOSTS))
    assert refused["code"] == "not_enough_resources"
    lease = story.ok("POST", f"{OFFERS}/{made['id']}/accept", {"name": "approved"}, token=MEMBER)
    assert (lease["id"], lease["name"], lease["status"]) == (made["id"], "approved", "PENDING")
    assert lease["reservations"][0]["id"] == made["reservations"][0]["id"]
    assert len(story.hosts_of(lease["id"])) == 4
    story.at(60)
    assert story.ok("GET", f"/v2/leases/{lease['id']}")["status"] == "ACTIVE"
    types = story.event_types(made["id"])
    assert types[:3] == ["offer.made", "offer.accepted", "lease.create"]
    assert list(violations(story.runtime.store)) == []


def test_an_accepted_offer_has_the_events_of_its_lease(story: Story) -> None:
    """They are as if the lease had been created when its offer was accepted."""
    body = story.asking(120, 240, events=[{"type": "backup", "at": story.moment(150)}])
    direct = story.ok("POST", "/v2/leases", body)
    made = story.ok("POST", OFFERS, body)
    lease = story.ok("POST", f"{OFFERS}/{made['id']}/accept")

    def shown(found: dict[str, Any]) -> list[tuple[str, str]]:
        return [(event["type"], event["at"]) for event in found["events"]]

    assert shown(lease) == shown(direct)


def test_an_expired_offer_is_free_for_others_at_once(story: Story) -> None:
    before = dump(story.runtime.database)
    made = offer(story)
    story.clock.advance(299)
    assert story.run() == 0
    story.clock.advance(1)
    path = f"{OFFERS}/{made['id']}"
    calls = [("GET", path), ("DELETE", path), ("POST", f"{path}/accept")]
    early = [story.problem(410, *call, token=MEMBER) for call in calls]
    assert story.run() == 1
    late = [story.problem(410, *call, token=MEMBER) for call in calls]
    assert {problem["code"] for problem in early + late} == {"offer_expired"}
    after = dump(story.runtime.database)
    assert {name for name in before if before[name] != after[name]} <= {
        "outbox",
        "booking_changes",
        "limits",
    }
    assert story.event_types(made["id"]) == ["offer.made", "offer.expired"]
    offer(story)


def test_a_deleted_offer_is_free_for_others_at_once(story: Story) -> None:
    made = offer(story)
    assert story.call("DELETE", f"{OFFERS}/{made['id']}", token=MEMBER).status_code == 204
    story.problem(404, "POST", f"{OFFERS}/{made['id']}/accept", token=MEMBER)
    again = offer(story)
    assert story.event_types(made["id"]) == ["offer.made", "offer.deleted"]
    assert story.ok("GET", OFFERS, token=READER)["offers"] == [again]


def test_an_offer_is_no_lease_yet(story: Story) -> None:
    made = offer(story)
    path = f"/v2/leases/{made['id']}"
    for method, body in (("GET", None), ("PATCH", {"name": "x"}), ("DELETE", None)):
        story.problem(404, method, path, body)
        v1 = "PUT" if method == "PATCH" else method
        assert story.call(v1, f"/v1/leases/{made['id']}", body).status_code == 404
    assert story.ok("GET", "/v2/leases?all_projects=true")["leases"] == []
    assert story.ok("GET", "/v1/leases")["leases"] == []


def test_a_lease_is_no_offer(story: Story) -> None:
    lease = story.reserve()
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/accept")):
        problem = story.problem(404, method, f"{OFFERS}/{lease['id']}{path}")
        assert f"/v2/leases/{lease['id']}" in problem["detail"]
    assert story.lease(lease["id"])["status"] == "PENDING"


@pytest.mark.parametrize(("token", "status"), [(STRANGER, 404), (READER, 403)])
def test_only_members_of_the_project_accept_or_delete(
    story: Story, token: str, status: int
) -> None:
    made = offer(story)
    for method, path in (("POST", "/accept"), ("DELETE", "")):
        story.problem(status, method, f"{OFFERS}/{made['id']}{path}", token=token)
    assert story.call("GET", f"{OFFERS}/{made['id']}", token=token).status_code == (
        404 if status == 404 else 200
    )
    story.problem(403, "POST", OFFERS, story.asking(), token=READER)


def test_an_expired_offer_is_hidden_from_other_projects(story: Story) -> None:
    made = offer(story)
    story.at(5)
    story.problem(404, "GET", f"{OFFERS}/{made['id']}", token=STRANGER)
    assert [item["event_type"] for item in story.published(made["id"])][-1] == "offer.expired"
    seen = story.ok("GET", "/v2/notifications", token=STRANGER)["notifications"]
    assert seen == []


def test_the_list_has_the_open_offers_of_the_project(story: Story) -> None:
    one = [hosts()]
    first = story.ok("POST", OFFERS, story.asking(hold=200, reservations=one), token=MEMBER)
    second = story.ok("POST", OFFERS, story.asking(hold=100, reservations=one), token=MEMBER)
    story.ok("POST", OFFERS, story.asking(reservations=one), token=STRANGER)
    assert story.ok("GET", OFFERS, token=READER)["offers"] == [second, first]
    page = story.ok("GET", f"{OFFERS}?limit=1", token=READER)
    assert page["offers"] == [second]
    assert story.ok("GET", page["next"], token=READER)["offers"] == [first]
    assert len(story.ok("GET", f"{OFFERS}?all_projects=true")["offers"]) == 3
    story.problem(403, "GET", f"{OFFERS}?all_projects=true", token=MEMBER)
    story.clock.advance(100)
    assert story.ok("GET", OFFERS, token=READER)["offers"] == [first], "it is expired"


def test_an_offer_starts_as_soon_as_possible(story: Story) -> None:
    story.ok("POST", "/v2/leases", story.asking(0, 60, reservations=ALL_HOSTS))
    fields = {"start": "asap", "duration": 3600, "end_by": story.moment(600)}
    body = {"name": "soon", "reservations": ALL_HOSTS, **fields}
    made = story.ok("POST", OFFERS, body, token=MEMBER)
    assert made["start"] == story.moment(60)


def test_a_refusal_has_alternatives_and_holds_nothing(story: Story) -> None:
    offer(story)
    asked = story.asking(reservations=ALL_HOSTS)
    refused = story.problem(409, "POST", OFFERS, asked, token=STRANGER)
    later = next(each for each in refused["alternatives"] if each["differs"] == "later")
    body = {**asked, "start": later["start"], "end": later["end"]}
    assert story.ok("POST", OFFERS, body, token=STRANGER)["start"] == later["start"]


def test_an_offer_expires_at_the_end_of_its_window_at_the_latest(story: Story) -> None:
    made = story.ok("POST", OFFERS, story.asking(0, 1, start="now"), token=MEMBER)
    assert made["expires_at"] == made["end"] == story.moment(1)


def test_an_offer_that_starts_now_starts_when_it_is_accepted(story: Story) -> None:
    made = story.ok("POST", OFFERS, {**story.asking(0, 60), "start": "now"}, token=MEMBER)
    story.clock.advance(240)
    assert accept(story, made["id"]).status_code == 201
    story.run()
    assert story.lease(made["id"])["status"] == "ACTIVE"
    assert "lease.catch_up" not in story.event_types(made["id"])


def test_offers_are_listed_and_expire_on_every_database(story_everywhere: Story) -> None:
    story = story_everywhere
    one = [hosts()]
    first = story.ok("POST", OFFERS, story.asking(hold=9, reservations=one), token=MEMBER)
    second = story.ok("POST", OFFERS, story.asking(hold=10, reservations=one), token=MEMBER)
    assert story.ok("GET", OFFERS, token=READER)["offers"] == [first, second]
    page = story.ok("GET", f"{OFFERS}?all_projects=true&limit=1")
    assert story.ok("GET", page["next"])["offers"] == [second]
    story.clock.advance(9)
    assert story.run() == 1
    assert story.ok("GET", OFFERS, token=READER)["offers"] == [second]
    story.problem(410, "GET", f"{OFFERS}/{first['id']}", token=READER)
    assert accept(story, second["id"]).status_code == 201
    assert list(violations(story.runtime.store)) == []


def test_an_offer_does_not_wait_in_the_wait_list(story: Story) -> None:
    fields = {"start": "asap", "duration": 3600, "wait": {}}
    body = {"name": "soon", "reservations": ALL_HOSTS, **fields}
    problem = story.problem(400, "POST", OFFERS, body, token=MEMBER)
    assert "#/wait" in [error["pointer"] for error in problem["errors"]]
    assert story.ok("GET", OFFERS, token=MEMBER)["offers"] == []


class TestLimits:
    def test_a_project_has_at_most_its_number_of_open_offers(self, story: Story) -> None:
        ids = [story.ok("POST", OFFERS, story.asking(), token=MEMBER)["id"] for _ in range(3)]
        problem = story.problem(403, "POST", OFFERS, story.asking(), token=MEMBER)
        assert (problem["code"], problem["limit"]) == ("limit_exceeded", "offers")
        story.ok("POST", OFFERS, story.asking(), token=STRANGER)
        accept(story, ids[0])
        story.ok("DELETE", f"{OFFERS}/{ids[1]}", token=MEMBER)
        for _ in range(2):
            story.ok("POST", OFFERS, story.asking(120, 180), token=MEMBER)
        story.problem(403, "POST", OFFERS, story.asking(120, 180), token=MEMBER)
        story.at(5)
        story.ok("POST", OFFERS, story.asking(), token=MEMBER)

    def test_an_offer_counts_as_a_lease(self, make_story: MakeStory) -> None:
        story = make_story(limits__enabled=True, limits__project_hosts=1)
        story.register(2)
        made = story.ok("POST", OFFERS, story.asking(), token=MEMBER)
        problem = story.problem(403, "POST", "/v2/leases", story.asking(), token=MEMBER)
        assert problem["limit"] == "hosts"
        assert accept(story, made["id"]).status_code == 201

    @pytest.mark.parametrize("hold", [0, 301, 1.5, "60", None, True])
    def test_a_hold_is_a_number_of_seconds_up_to_the_longest(
        self, story: Story, hold: object
    ) -> None:
        before = dump(story.runtime.database)
        problem = story.problem(400, "POST", OFFERS, story.asking(hold=hold), token=MEMBER)
        assert problem["errors"][0]["pointer"] == "#/hold"
        assert dump(story.runtime.database) == before


class TestIdempotency:
    def test_a_repeated_offer_gets_the_first_answer(self, story: Story) -> None:
        headers = {"Idempotency-Key": "one"}
        body = story.asking(reservations=ALL_HOSTS)
        first, again = (
            story.call("POST", OFFERS, body, token=MEMBER, headers=headers) for _ in range(2)
        )
        assert first.status_code == again.status_code == 201
        assert first.get_data() == again.get_data()
        other = story.problem(422, "POST", "/v2/leases", body, token=MEMBER, headers=headers)
        assert other["code"] == "idempotency_key_reused"

    def test_a_repeated_acceptance_gets_the_first_answer(self, story: Story) -> None:
        made = offer(story)
        first, again = (accept(story, made["id"], key="two") for _ in range(2))
        assert first.status_code == again.status_code == 201
        assert first.get_data() == again.get_data()
        assert first.headers["Location"] == f"/v2/leases/{made['id']}"
        assert first.headers["ETag"] == again.headers["ETag"]
        assert accept(story, made["id"], key="three").status_code == 404
        assert accept(story, made["id"]).status_code == 404
