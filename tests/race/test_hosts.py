"""Concurrent requests about one host or one lease: each gets a valid answer."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from climate.db.resources import allocations
from climate.db.resources.allocations import Grabbed
from climate.manager.admission.at_once import AtOnce
from climate.manager.leases import create
from tests.race.crowd import SIZE, Crowd, at_work, wait_for_all
from tests.race.databases import postgresql_first
from tests.support.service import Story, host_reservation

LEASES, HOSTS = "/v1/leases", "/v1/os-hosts"
ROUNDS = 3

Answers = Counter[tuple[str, int]]


@pytest.fixture
def here(database_url: str) -> Iterator[Story]:
    """Return the service in this process."""
    with at_work(database_url) as story:
        yield story


def _send(story: Story, method: str, path: str, body: Any = None) -> tuple[str, int]:
    return method, story.call(method, path, body).status_code


def _register(number: int, url: str, same: bool) -> tuple[str, int]:
    with at_work(url) as story:
        body = {"name": "sim-1" if same else f"sim-{number + 1}", "gpu": "yes"}
        wait_for_all()
        return _send(story, "POST", HOSTS, body)


def _delete_or_book(number: int, url: str, host: str) -> tuple[str, int]:
    with at_work(url) as story:
        body = story.lease_body()
        wait_for_all()
        if number % 2:
            return _send(story, "DELETE", f"{HOSTS}/{host}")
        return _send(story, "POST", LEASES, body)


def _change_or_book(number: int, url: str, host: str) -> tuple[str, int]:
    with at_work(url) as story:
        wanted = host_reservation(resource_properties='["==", "$gpu", "yes"]')
        body = story.lease_body(reservations=[wanted])
        wait_for_all()
        if number % 2:
            return _send(story, "PUT", f"{HOSTS}/{host}", {"gpu": "no"})
        return _send(story, "POST", LEASES, body)


def _change_and_delete(number: int, url: str, lease: dict[str, Any]) -> Answers:
    """Send changes of every kind; the last process deletes the lease in the end."""
    path, reservation = f"{LEASES}/{lease['id']}", lease["reservations"][0]["id"]
    with at_work(url) as story:
        changes: list[dict[str, Any]] = [
            {"name": f"name {number}"},
            {"reservations": [{"id": reservation, "min": 1, "max": 1 + number % 4}]},
            {"start_date": story.date(60 + number), "end_date": story.date(200 + number)},
            {"end_date": story.date(100 + number)},
        ]
        wait_for_all()
        mine = changes[number % 4 :] + changes[: number % 4]
        answers = Counter(_send(story, "PUT", path, change) for change in mine)
        if number == SIZE - 1:
            answers[_send(story, "DELETE", path)] += 1
        return answers


def _manage_or_change(number: int, url: str, journal: str, leases: list[str]) -> Answers:
    """Process due events, or prolong, rename and delete their leases."""
    with at_work(url, simulated__journal=journal) as story:
        wait_for_all()
        if number % 2:
            story.run()
            return Counter()
        body = {"name": f"name {number}", "end_date": story.date(120 + number)}
        answers = Counter(_send(story, "PUT", f"{LEASES}/{lease}", body) for lease in leases)
        if number == 0:
            answers.update(_send(story, "DELETE", f"{LEASES}/{lease}") for lease in leases[:2])
        return answers


def test_one_of_many_registrations_of_a_host_succeeds(
    crowd: Crowd, database_url: str, here: Story
) -> None:
    answers = Counter(crowd.do(_register, database_url, True))
    assert answers == {("POST", 201): 1, ("POST", 409): SIZE - 1}
    [host] = here.ok("GET", HOSTS)["hosts"]
    assert (host["hypervisor_hostname"], host["gpu"]) == ("sim-1", "yes")


def test_hosts_with_the_same_new_capability_are_registered_concurrently(
    crowd: Crowd, database_url: str, here: Story
) -> None:
    assert Counter(crowd.do(_register, database_url, False)) == {("POST", 201): SIZE}
    assert {host["gpu"] for host in here.ok("GET", HOSTS)["hosts"]} == {"yes"}
    found = here.ok("GET", f"{HOSTS}/properties")["resource_properties"]
    assert found == [{"property": "gpu"}]


@postgresql_first
def test_no_lease_gets_a_host_that_is_deleted_concurrently(
    crowd: Crowd, database_url: str, here: Story
) -> None:
    for _ in range(ROUNDS):
        host = here.ok("POST", HOSTS, {"name": "sim-1"})["host"]["id"]
        answers = Counter(crowd.do(_delete_or_book, database_url, host))
        assert set(answers) <= {
            ("DELETE", 204),
            ("DELETE", 404),
            ("DELETE", 409),
            ("POST", 201),
            ("POST", 409),
        }
        assert answers["DELETE", 204] + answers["POST", 201] == 1
        leases = here.ok("GET", LEASES)["leases"]
        assert [here.hosts_of(lease["id"]) for lease in leases] == [[host]] * len(leases)
        if leases:
            here.ok("DELETE", f"{LEASES}/{leases[0]['id']}")
            here.ok("DELETE", f"{HOSTS}/{host}")


@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
def test_a_host_that_changed_before_its_lock_is_checked_again(
    here: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = here.ok("POST", HOSTS, {"name": "sim-1", "gpu": "yes"})["host"]["id"]

    def grab_late(session: Session, *needs: Any, locking: int, **options: Any) -> Grabbed:
        found = allocations.candidates(session, *needs, **options)
        here.ok("PUT", f"{HOSTS}/{host}", {"gpu": "no"})
        locked = allocations.lock(session, found, wait=False)
        return Grabbed(found, locked, changed=locked)

    monkeypatch.setattr(create, "book_at_once", lambda *_, **__: AtOnce.UNDECIDED)
    monkeypatch.setattr(allocations, "grab", grab_late)
    wanted = host_reservation(resource_properties='["==", "$gpu", "yes"]')
    answer = here.call("POST", LEASES, here.lease_body(reservations=[wanted]))
    assert answer.status_code == 409, answer.get_data(as_text=True)


@postgresql_first
def test_no_lease_gets_a_host_that_stops_matching_concurrently(
    crowd: Crowd, database_url: str, here: Story
) -> None:
    host = here.ok("POST", HOSTS, {"name": "sim-1", "gpu": "yes"})["host"]["id"]
    for _ in range(ROUNDS):
        here.ok("PUT", f"{HOSTS}/{host}", {"gpu": "yes"})
        answers = Counter(crowd.do(_change_or_book, database_url, host))
        assert set(answers) <= {("PUT", 200), ("PUT", 409), ("POST", 201), ("POST", 409)}
        gpu = here.ok("GET", f"{HOSTS}/{host}")["host"]["gpu"]
        leases = here.ok("GET", LEASES)["leases"]
        assert (gpu, len(leases)) in {("yes", 1), ("no", 0)}
        for lease in leases:
            here.ok("DELETE", f"{LEASES}/{lease['id']}")


@postgresql_first
def test_concurrent_changes_and_deletion_of_a_lease_get_valid_answers(
    crowd: Crowd, database_url: str, here: Story
) -> None:
    here.register(3)
    lease = here.reserve(60, 200)
    answers = sum(crowd.do(_change_and_delete, database_url, lease), Counter())
    assert set(answers) <= {("PUT", 200), ("PUT", 404), ("PUT", 409), ("DELETE", 204)}
    assert answers["PUT", 200] > 0
    assert answers["DELETE", 204] == 1
    here.refused(404, "GET", f"{LEASES}/{lease['id']}")
    assert len(here.reserve(60, 400, reservations=[host_reservation(3, 3)])) > 0


@postgresql_first
def test_managers_and_users_work_on_the_same_leases(
    crowd: Crowd, database_url: str, here: Story, tmp_path: Path
) -> None:
    here.register(4)
    leases = [here.reserve(0, 60)["id"] for _ in range(4)]
    journal = str(tmp_path / "cloud")
    answers = sum(crowd.do(_manage_or_change, database_url, journal, leases), Counter())
    assert set(answers) <= {("PUT", 200), ("PUT", 404), ("PUT", 409), ("DELETE", 204)}
    with at_work(database_url, simulated__journal=journal) as story:
        story.at(1 / 60)  # a manager that finds a lease locked tries again a moment later
        left = {lease["id"]: lease["status"] for lease in story.ok("GET", LEASES)["leases"]}
        assert left == dict.fromkeys(leases[2:], "ACTIVE")
        effects = Counter(
            (effect["effect"], effect.get("host")) for effect in story.cloud.effects()
        )
        assert all(
            effects["add_host", f"sim-{n}"] - effects["remove_host", f"sim-{n}"] in {0, 1}
            for n in range(1, 5)
        )
        assert effects["ensure_pool", None] - effects["delete_pool", None] == len(left)
