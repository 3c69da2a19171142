"""A refusal says why, what is in the way, and what would be admitted instead."""

from typing import Any

import pytest
import sqlalchemy as sa

from climate.core.errors import NotEnoughResources
from climate.manager import leases, updates
from climate.manager.drafts import LeaseRequest, Owner
from climate.manager.requests import ReservationRequest
from tests.support.service import Story, host_reservation, hosts

ME = "me:mine:member"
OTHER = "other:theirs:member"


def ask(story: Story, start: float, end: float, *asked: dict[str, Any]) -> str:
    """Ask for what cannot be had, and return the sentence that says so."""
    body = story.lease_body(start, end, reservations=list(asked))
    return story.refused(409, "POST", "/v1/leases", body, token=ME)


def reserve(story: Story, start: float, end: float, count: int, token: str = OTHER) -> str:
    body = story.lease_body(start, end, reservations=[host_reservation(count, count)])
    return str(story.ok("POST", "/v1/leases", body, token=token)["lease"]["id"])


def details_of(story: Story, start: float, end: float, asked: dict[str, Any]) -> dict[str, Any]:
    """Return what programs are told about a refusal."""
    now = story.clock.now()
    schema = story.runtime.plugin("physical:host").schema()
    request = LeaseRequest(
        name="lease",
        start=now.replace(hour=now.hour + int(start // 60)),
        end=now.replace(hour=now.hour + int(end // 60)),
        reservations=(
            ReservationRequest(resource_type="physical:host", params=schema.load(asked)),
        ),
    )
    with pytest.raises(NotEnoughResources) as refusal:
        leases.create(story.runtime, Owner(user_id="me", project_id="mine"), request)
    return refusal.value.details


def test_it_says_what_failed_and_how_much_there_was(story: Story) -> None:
    reserve(story, 60, 120, 3)
    details = details_of(story, 60, 120, host_reservation(2, 2))
    assert details["reservation"] == 0
    assert (details["asked"], details["matching"], details["free"]) == (2, 4, 1)
    assert details["missing"] == 1


def test_what_would_fit_is_later_shorter_or_fewer(story: Story) -> None:
    reserve(story, 120, 180, 3)
    found = details_of(story, 60, 180, host_reservation(2, 2))["alternatives"]
    assert [(one["differs"], one["start"][11:16], one["end"][11:16]) for one in found] == [
        ("later", "15:00", "17:00"),
        ("shorter", "13:00", "14:00"),
        ("fewer", "13:00", "15:00"),
    ]
    assert [one["amount"] for one in found] == [2, 2, 1]


def test_every_alternative_is_admitted_when_it_is_asked_for(story: Story) -> None:
    reserve(story, 120, 180, 3)
    found = details_of(story, 60, 180, host_reservation(2, 2))["alternatives"]
    for one in found:
        body = story.lease_body(reservations=[host_reservation(one["amount"], one["amount"])])
        body["start_date"] = one["start"][:16].replace("T", " ")
        body["end_date"] = one["end"][:16].replace("T", " ")
        lease = story.ok("POST", "/v1/leases", body)["lease"]
        story.ok("DELETE", f"/v1/leases/{lease['id']}")


def test_other_properties_may_be_had(story: Story) -> None:
    large = host_reservation(1, 1, resource_properties='[">=", "$vcpus", "64"]')
    story.ok("POST", "/v1/leases", story.lease_body(reservations=[large]), token=OTHER)
    found = details_of(story, 60, 120, large)["alternatives"]
    assert [one["differs"] for one in found] == ["later", "other"]


def test_own_leases_in_the_way_are_named_and_others_are_not(story: Story) -> None:
    mine = reserve(story, 60, 120, 2, ME)
    theirs = reserve(story, 90, 150, 2)
    sentence = ask(story, 60, 120, host_reservation(3, 3))
    assert f"your own lease lease ({mine})" in sentence
    assert theirs not in sentence
    assert "by others from 2030-01-15 13:30 to 2030-01-15 14:30" in sentence


def test_the_sentence_names_what_would_fit(story: Story) -> None:
    reserve(story, 60, 120, 4)
    sentence = ask(story, 60, 120, host_reservation(1, 1))
    assert "What would fit now: later, from 2030-01-15 14:00 to 2030-01-15 15:00" in sentence


def test_nothing_is_promised_where_nothing_fits(story: Story) -> None:
    details = details_of(story, 60, 120, host_reservation(5, 5))
    assert [one["differs"] for one in details["alternatives"]] == ["fewer"]
    none = host_reservation(1, 1, resource_properties='[">=", "$vcpus", "1000"]')
    assert "other" in [one["differs"] for one in details_of(story, 60, 120, none)["alternatives"]]


def test_a_change_that_is_refused_says_what_would_fit(story: Story) -> None:
    mine = reserve(story, 60, 120, 2, ME)
    reserve(story, 120, 180, 4)
    found = _prolong(story, mine)["alternatives"]
    assert [(one["differs"], one["start"][11:16], one["end"][11:16]) for one in found] == [
        ("later", "15:00", "17:30"),
        ("shorter", "13:00", "14:00"),
    ]


def test_a_lease_that_runs_cannot_be_moved_to_later(story: Story) -> None:
    mine = reserve(story, 60, 120, 2, ME)
    reserve(story, 120, 180, 4)
    story.at(60)
    assert "later" not in [one["differs"] for one in _prolong(story, mine)["alternatives"]]


def test_a_lease_that_runs_is_shorter_only_if_that_helps(story: Story) -> None:
    mine = reserve(story, 60, 120, 2, ME)
    reserve(story, 120, 180, 4)
    story.at(60)
    [shorter] = _prolong(story, mine)["alternatives"]
    assert (shorter["differs"], shorter["end"][11:16]) == ("shorter", "14:00")
    [asked] = story.lease(mine)["reservations"]
    fewer = {"reservations": [{"id": asked["id"], "params": {"min": 1, "max": 1}}]}
    longer = {"end": "2030-01-15T15:30:00Z"}
    more = {"add_reservations": [hosts(3, 3)]}
    for change in (fewer, {**fewer, **longer}, {**more, **longer}):
        refusal = story.problem(409, "PATCH", f"/v2/leases/{mine}", change, token=ME)
        assert refusal["alternatives"] == []


def test_what_is_in_use_is_named_by_its_place(story: Story) -> None:
    pair = [host_reservation(1, 1), host_reservation(2, 2)]
    mine = story.reserve(0, 60, reservations=pair)
    story.run()
    second = {"id": mine["reservations"][1]["id"], "params": {"min": 1, "max": 1}}
    refusal = story.problem(409, "PATCH", f"/v2/leases/{mine['id']}", {"reservations": [second]})
    assert refusal["reservation"] == 1


def _prolong(story: Story, lease_id: str) -> dict[str, Any]:
    """Ask for a lease until half past three, which cannot be had; return what programs are told."""
    change = updates.Change(end=story.clock.now().replace(hour=15, minute=30))
    with pytest.raises(NotEnoughResources) as refusal:
        updates.update(story.runtime, lease_id, updates.LeaseChange(dates=change))
    return refusal.value.details


def test_every_database_says_what_is_in_the_way_own_leases_first(story_everywhere: Story) -> None:
    reserve(story_everywhere, 60, 120, 2)
    mine = reserve(story_everywhere, 90, 120, 2, token=ME)
    told = ask(story_everywhere, 60, 120, host_reservation(4, 4))
    assert told.index(mine) < told.index("by others from 2030-01-15 13:00")


def test_why_very_many_do_not_fit_together_is_not_looked_at_for_long(story: Story) -> None:
    for number in range(1, 40):
        reserve(story, 60 * number, 60 * number + 30, 1)
    statements: list[object] = []
    engine = story.runtime.database.engine
    sa.event.listen(engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    ask(story, 60, 90, *[host_reservation() for _ in range(100)])
    assert len(statements) < 1500
