"""A rejection for lack of capacity: why, what blocks, and what would be admitted instead."""

from typing import Any

import pytest
import sqlalchemy as sa

from climate.core.errors import NotEnoughResources
from climate.core.lease.change import Change
from climate.manager.admission.requirements import ReservationRequest
from climate.manager.leases.create import LeaseRequest, Owner, create_lease
from climate.manager.leases.reservation_changes import LeaseChange
from climate.manager.leases.update import update_lease
from tests.support.service import Story, host_reservation, hosts

MINE, OTHER = "me:mine:member", "other:theirs:member"


def sentence(story: Story, start: float, end: float, *reservations: dict[str, Any]) -> str:
    """Request what cannot be admitted and return the message of v1."""
    body = story.lease_body(start, end, reservations=list(reservations))
    return story.refused(409, "POST", "/v1/leases", body, token=MINE)


def reserve(story: Story, start: float, end: float, count: int, token: str = OTHER) -> str:
    body = story.lease_body(start, end, reservations=[host_reservation(count, count)])
    return str(story.ok("POST", "/v1/leases", body, token=token)["lease"]["id"])


def details(story: Story, start: int, end: int, reservation: dict[str, Any]) -> dict[str, Any]:
    """Return the details of the rejection for programs."""
    now = story.clock.now()
    params = story.runtime.plugin("physical:host").schema().load(reservation)
    request = LeaseRequest(
        name="lease",
        start=now.replace(hour=now.hour + start // 60),
        end=now.replace(hour=now.hour + end // 60),
        reservations=(ReservationRequest(resource_type="physical:host", params=params),),
    )
    with pytest.raises(NotEnoughResources) as error:
        create_lease(story.runtime, Owner(user_id="me", project_id="mine"), request)
    return error.value.details


def extend(story: Story, lease_id: str) -> list[tuple[str, str, str]]:
    """Return the alternatives to an end at half past three, which is not possible."""
    change = Change(end=story.clock.now().replace(hour=15, minute=30))
    with pytest.raises(NotEnoughResources) as error:
        update_lease(story.runtime, lease_id, LeaseChange(dates=change))
    return windows(error.value.details)


def windows(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    offers = found["alternatives"]
    return [(offer["differs"], offer["start"][11:16], offer["end"][11:16]) for offer in offers]


def test_a_later_lease_from_now_on_lasts_as_long_as_requested(story: Story) -> None:
    story.clock.advance(0.5)  # the request arrives at the whole second before
    reserve(story, 0, 60, 4)
    body = {**story.asking(reservations=[hosts(1, 1)]), "start": "now", "duration": 7200}
    del body["end"]
    refused = story.problem(409, "POST", "/v2/leases", body, token=MINE)
    assert windows(refused)[0] == ("later", "13:00", "15:00")
    body["start"], body["duration"] = story.moment(), 90  # seconds show where they matter
    assert (
        "from 2030-01-15 12:00 to 2030-01-15 12:01:30"
        in story.problem(409, "POST", "/v2/leases", body, token=MINE)["detail"]
    )
    v1 = {**story.lease_body(0, 5), "start_date": "now"}
    message = story.refused(409, "POST", "/v1/leases", v1, token=MINE)
    assert "later, from 2030-01-15 13:00 to 2030-01-15 13:05" in message


def test_offers_a_later_a_shorter_or_a_smaller_lease_that_would_be_admitted(story: Story) -> None:
    reserve(story, 120, 180, 3)
    found = details(story, 60, 180, host_reservation(2, 2))
    assert found["reservation"] == 0
    assert [found[key] for key in ("asked", "matching", "free", "missing")] == [2, 4, 1, 1]
    assert windows(found) == [
        ("later", "15:00", "17:00"),
        ("shorter", "13:00", "14:00"),
        ("fewer", "13:00", "15:00"),
    ]
    assert [offer["amount"] for offer in found["alternatives"]] == [2, 2, 1]
    for offer in found["alternatives"]:
        body = story.lease_body(
            reservations=[host_reservation(offer["amount"], offer["amount"])],
            start_date=offer["start"][:16].replace("T", " "),
            end_date=offer["end"][:16].replace("T", " "),
        )
        lease = story.ok("POST", "/v1/leases", body)["lease"]
        story.ok("DELETE", f"/v1/leases/{lease['id']}")


def test_offers_other_properties_and_nothing_that_does_not_fit(story: Story) -> None:
    def offered(count: int, vcpus: int | None = None) -> list[str]:
        expression = f'[">=", "$vcpus", "{vcpus}"]' if vcpus else ""
        request = host_reservation(count, count, resource_properties=expression)
        return [kind for kind, *_ in windows(details(story, 60, 120, request))]

    assert offered(5) == ["fewer"]
    assert "other" in offered(1, 1000)
    large = host_reservation(1, 1, resource_properties='[">=", "$vcpus", "64"]')
    story.ok("POST", "/v1/leases", story.lease_body(reservations=[large]), token=OTHER)
    assert offered(1, 64) == ["later", "other"]


def test_every_database_names_own_leases_first_and_hides_others(story_everywhere: Story) -> None:
    story = story_everywhere
    other = reserve(story, 60, 120, 2)
    mine = reserve(story, 90, 120, 2, MINE)
    message = sentence(story, 60, 120, host_reservation(4, 4))
    assert f"your own lease lease ({mine})" in message
    assert other not in message
    blocked = "by others from 2030-01-15 13:00 to 2030-01-15 14:00"
    assert message.index(mine) < message.index(blocked)
    assert "What would fit now: later, from 2030-01-15 14:00 to 2030-01-15 15:00" in message
    wanted = host_reservation(3, 4, resource_properties='["<=", "$vcpus", "64"]')
    body = story.lease_body(60, 120, reservations=[wanted])
    response = story.call("POST", "/v1/leases", body)
    assert response.status_code == 409
    assert response.headers["Climate-Error-Code"] == "not_enough_resources"
    message = response.get_json()["error_message"]
    assert message.startswith("Not enough hosts available")
    assert "at least 3 requested" in message
    assert "4 match the requirements" in message
    assert "0 of them free from 2030-01-15 13:00 to 2030-01-15 14:00" in message


def test_two_leases_of_others_that_touch_look_like_one(story_everywhere: Story) -> None:
    story = story_everywhere
    reserve(story, 60, 120, count=4)
    reserve(story, 120, 180, count=4)
    found = details(story, 60, 180, host_reservation(1, 1))
    assert found["blocked_by"] == [
        {"start": "2030-01-15T13:00:00Z", "end": "2030-01-15T15:00:00Z"},
    ]


def test_a_rejected_change_offers_only_dates_that_are_still_possible(story: Story) -> None:
    mine = reserve(story, 60, 120, 2, MINE)
    reserve(story, 120, 180, 4)
    shorter = ("shorter", "13:00", "14:00")
    assert extend(story, mine) == [("later", "15:00", "17:30"), shorter]
    story.at(60)
    assert extend(story, mine) == [shorter]  # an active lease cannot start later
    longer = {"end": "2030-01-15T15:30:00Z", "add_reservations": [hosts(3, 3)]}
    problem = story.problem(409, "PATCH", f"/v2/leases/{mine}", longer, token=MINE)
    assert problem["alternatives"] == []


def test_a_rejected_extension_offers_no_end_before_the_present_one(story: Story) -> None:
    def lease(start: str, end: str, count: int) -> str:
        times = {"start": f"2030-01-15T13:{start}Z", "end": f"2030-01-15T13:{end}Z"}
        body = {"name": "lease", "reservations": [hosts(count, count)], **times}
        return str(story.ok("POST", "/v2/leases", body)["id"])

    mine = lease("00:00", "40:30", 4)
    lease("40:30", "50:00", 4)
    path = f"/v2/leases/{mine}"
    refused = story.problem(409, "PATCH", path, {"end": "2030-01-15T13:50:00Z"})
    assert [kind for kind, *_ in windows(refused)] == ["later"]


def test_named_hosts_get_only_alternatives_that_help(story: Story) -> None:
    def book(first: float, last: float, name: str) -> None:
        query = f'["==", "$hypervisor_hostname", "{name}"]'
        reservations = [hosts(1, 1, hypervisor_properties=query)]
        story.ok("POST", "/v2/leases", story.asking(first, last, reservations=reservations))

    lease = story.ok("POST", "/v2/leases", story.asking(reservations=[hosts(), hosts()]))
    path = f"/v2/leases/{lease['id']}"
    held = story.ok("GET", f"{path}/resources")["resources"]
    by_reservation = {each["reservation_id"]: each["name"] for each in held}
    first, second = (each["id"] for each in lease["reservations"])
    sibling = by_reservation[second]
    booked, free = sorted({f"sim-{i}" for i in range(1, 5)} - {*by_reservation.values()})
    book(60, 180, booked)
    book(120, 180, sibling)

    def add(names: list[str], start: float, end: float) -> dict[str, Any]:
        change = {"id": first, "add_hosts": names}
        dates = {"start": story.moment(start), "end": story.moment(end)}
        return {"reservations": [change], **dates}

    def offered(names: list[str], start: float, end: float) -> list[tuple[str, str, str]]:
        return windows(story.problem(409, "PATCH", path, add(names, start, end)))

    assert offered([sibling], 60, 120) == []  # the lease has it, in each window
    assert offered([sibling], 120, 180) == []  # also if it is booked then
    assert offered([sibling], 90, 150) == []
    # Not "fewer": a number would not say which of the two hosts to leave out.
    assert offered([booked, free], 60, 120) == [("later", "15:00", "16:00")]
    assert story.ok("PATCH", f"{path}?dry_run=true", add([booked, free], 180, 240))


def test_names_the_reservation_that_is_in_use(story: Story) -> None:
    pair = [host_reservation(1, 1), host_reservation(2, 2)]
    mine = story.reserve(0, 60, reservations=pair)
    story.run()
    other = {"hypervisor_properties": ["==", "$vcpus", 1]}
    change = {"reservations": [{"id": mine["reservations"][1]["id"], "params": other}]}
    assert story.problem(409, "PATCH", f"/v2/leases/{mine['id']}", change)["reservation"] == 1


def test_the_explanation_of_very_many_reservations_needs_few_statements(story: Story) -> None:
    for number in range(1, 40):
        reserve(story, 60 * number, 60 * number + 30, 1)
    statements: list[object] = []
    engine = story.runtime.database.engine
    sa.event.listen(engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    sentence(story, 60, 90, *[host_reservation() for _ in range(100)])
    assert len(statements) < 1500
