"""The enforcement service decides about leases; no row is locked while it answers."""

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import TestResponse

from climate.config.registry import Misconfigured
from climate.manager.enforcement import Enforcer
from tests.conftest import MakeStory
from tests.race.crowd import at_work
from tests.support import enforcement
from tests.support.enforcement import Answer, EnforcementService, rejection
from tests.support.rows import dump
from tests.support.service import Story, host_reservation, hosts

CREATE, UPDATE, ON_END = "/check-create", "/check-update", "/on-end"

Make = Callable[..., Story]


@pytest.fixture
def outside() -> Iterator[EnforcementService]:
    with enforcement.serving() as made:
        yield made


@pytest.fixture
def enforced(
    make_story: MakeStory, hosts_template: Path, tmp_path: Path, outside: EnforcementService
) -> Make:
    """Return a maker of services that ask it; options of [enforcement] are given by their names."""

    def make(**values: Any) -> Story:
        shutil.copy(hosts_template, tmp_path / "climate.sqlite")
        shutil.copy(hosts_template.parent / "cloud", tmp_path / "cloud")
        given = {"external_service_base_endpoint": outside.url, **values}
        options = {name if "__" in name else f"enforcement__{name}": given[name] for name in given}
        return make_story(**options)

    return make


@pytest.fixture
def story(enforced: Make) -> Story:
    return enforced()


def rows(story: Story, *but: str) -> dict[str, Any]:
    return {name: found for name, found in dump(story.runtime.database).items() if name not in but}


def finalizers(story: Story) -> list[dict[str, Any]]:
    return [row for row in dump(story.runtime.database)["events"] if row["kind"] == "tell_end"]


def code(story: Story, method: str, path: str, body: Any) -> tuple[int, str | None, str]:
    answer = story.call(method, path, body)
    message = answer.get_json()["error_message"]
    return answer.status_code, answer.headers.get("Climate-Error-Code"), message


class TestCreate:
    def test_the_service_gets_the_requester_the_lease_and_its_hosts(
        self, enforced: Make, outside: EnforcementService
    ) -> None:
        story = enforced(
            external_service_token="s3cret",
            auth_url="https://keystone.example.org/v3",
            service_user__region_name="north",
        )
        body = story.lease_body(60, 120, reservations=[host_reservation(2, 2)])
        lease = story.ok("POST", "/v1/leases", body, token="alice:lab")["lease"]
        [asked] = outside.asked
        assert asked.path == CREATE
        assert asked.headers["X-Auth-Token"] == "s3cret"
        assert asked.headers["Content-Type"] == "application/json"
        assert asked.body["context"] == {
            "user_id": "alice",
            "project_id": "lab",
            "auth_url": "https://keystone.example.org/v3",
            "region_name": "north",
        }
        sent = asked.body["lease"]
        assert (sent["id"], sent["name"]) == (lease["id"], "lease")
        assert (sent["start_date"], sent["end_date"]) == (
            "2030-01-15T13:00:00",
            "2030-01-15T14:00:00",
        )
        [reservation] = sent["reservations"]
        assert (reservation["resource_type"], reservation["min"]) == ("physical:host", 2)
        hosts = reservation["allocations"]
        assert sorted(host["id"] for host in hosts) == sorted(story.hosts_of(lease["id"]))
        assert all(host["hypervisor_hostname"].startswith("sim-") for host in hosts)
        assert all(host["vcpus"] in {"16", "64"} for host in hosts)

    def test_an_approved_lease_is_like_any_other(self, story: Story) -> None:
        lease = story.reserve(60, 120)
        assert lease["status"] == "PENDING"
        assert story.lease(lease["id"]) == lease
        kinds = {event["event_type"] for event in lease["events"]}
        assert kinds == {"before_start_lease", "start_lease", "before_end_lease", "end_lease"}
        assert story.event_types(lease["id"]) == ["lease.create"]
        story.at(60)
        assert story.lease(lease["id"])["status"] == "ACTIVE"

    def test_a_denial_is_passed_on_and_leaves_no_rows(
        self, story: Story, outside: EnforcementService
    ) -> None:
        before = rows(story)
        outside.answers = [rejection("You have 3 credits left, this would cost 5.")]
        assert code(story, "POST", "/v1/leases", story.lease_body()) == (
            403,
            "enforcement_denied",
            "You have 3 credits left, this would cost 5.",
        )
        assert rows(story) == before

    def test_a_denial_without_a_reason_is_still_a_denial(
        self, story: Story, outside: EnforcementService
    ) -> None:
        bodies = [b"", b"<html>", b"[]", b'{"message": 3}', b'{"a": 1}', b"\xff"]
        outside.answers = [Answer(403, body) for body in bodies]
        generic = "The enforcement service of this cloud does not allow it"
        for body in bodies:
            status, _, message = code(story, "POST", "/v1/leases", story.lease_body())
            assert (status, message) == (403, generic), body

    def test_a_held_lease_keeps_its_hosts_and_is_neither_visible_nor_started(
        self, story: Story, outside: EnforcementService
    ) -> None:
        found: dict[str, Any] = {}

        def meanwhile() -> None:
            lease_id = outside.asked[0].body["lease"]["id"]
            for method in ("GET", "PUT", "DELETE"):
                found[method] = story.call(method, f"/v1/leases/{lease_id}", {}).status_code
            found["list"] = story.ok("GET", "/v1/leases")["leases"]
            body = story.lease_body(0, 60, reservations=[host_reservation(4, 4)])
            found["others"] = story.call("POST", "/v1/leases", body).status_code
            found["events"] = story.run()
            found["told"] = story.published()

        outside.answers = [Answer(wait=meanwhile)]
        body = story.lease_body(0, 60, reservations=[host_reservation(2, 2)])
        lease = story.ok("POST", "/v1/leases", body)["lease"]
        assert found == {
            "GET": 404,
            "PUT": 404,
            "DELETE": 404,
            "list": [],
            "others": 409,
            "events": 0,
            "told": [],
        }
        assert story.run() > 0
        assert story.lease(lease["id"])["status"] == "ACTIVE"

    def test_a_refusal_shows_only_the_times_of_a_held_lease(
        self, story: Story, outside: EnforcementService
    ) -> None:
        body = story.asking(reservations=[hosts(4, 4)])
        found: list[Any] = []

        def meanwhile() -> None:
            found.extend(story.problem(409, "POST", "/v2/leases", body)["blocked_by"])

        outside.answers = [Answer(wait=meanwhile)]
        story.ok("POST", "/v2/leases", body)
        assert [sorted(blocker) for blocker in found] == [["end", "start"]]

    def test_a_repeated_idempotency_key_is_rejected_while_the_first_request_is_held(
        self, story: Story, outside: EnforcementService
    ) -> None:
        body = story.asking(reservations=[hosts(4, 4)])
        found: list[tuple[int, str]] = []

        def send() -> TestResponse:
            return story.call("POST", "/v2/leases", body, headers={"Idempotency-Key": "key-1"})

        def meanwhile() -> None:
            answer = send()
            found.append((answer.status_code, answer.get_json()["code"]))

        outside.answers = [Answer(wait=meanwhile, status=403), Answer(wait=meanwhile)]
        assert send().status_code == 403
        made = send()
        assert found == [(409, "request_under_way")] * 2
        assert made.status_code == 201
        assert send().get_data() == made.get_data()
        assert len(outside.asked) == 2

    def test_a_held_lease_counts_against_limits(
        self, enforced: Make, outside: EnforcementService
    ) -> None:
        story = enforced(limits__enabled=True, limits__project_leases=1)
        found: list[int] = []

        def meanwhile() -> None:
            found.append(story.call("POST", "/v1/leases", story.lease_body()).status_code)

        outside.answers = [Answer(wait=meanwhile)]
        story.reserve()
        assert found == [403]

    def test_only_configured_endpoints_are_called(
        self, enforced: Make, outside: EnforcementService
    ) -> None:
        story = enforced(
            external_service_base_endpoint=None,
            external_service_on_end_endpoint=f"{outside.url}/over",
        )
        lease = story.reserve()
        story.ok("PUT", f"/v1/leases/{lease['id']}", {"end_date": story.date(180)})
        story.ok("DELETE", f"/v1/leases/{lease['id']}")
        story.run()
        assert [asked.path for asked in outside.asked] == ["/over"]


TROUBLE = ["500", "200", "401", "redirect", "slow", "drips", "long", "unreachable"]


class TestNoAnswer:
    @pytest.fixture(params=TROUBLE)
    def trouble(self, request: pytest.FixtureRequest) -> Iterator[Answer | None]:
        """Return each answer that is of no use; None if nothing listens."""
        over = threading.Event()
        answers = {
            "redirect": Answer(307),
            "slow": Answer(wait=lambda: over.wait(5)),
            "drips": Answer(403, drip=over),
            "long": Answer(500, b"x" * 20_000),
            "unreachable": None,
        }
        name = request.param
        yield answers[name] if name in answers else Answer(int(name), b"what?")
        over.set()

    def test_a_lease_is_rejected_or_granted_with_fail_open(
        self, enforced: Make, outside: EnforcementService, trouble: Answer | None
    ) -> None:
        options: dict[str, Any] = {"connect_timeout": 0.1, "timeout": 0.2}
        if trouble is None:
            options["external_service_base_endpoint"] = "http://127.0.0.1:9"
        for fail_open in (True, False):
            story = enforced(fail_open=fail_open, **options)
            outside.answers = [trouble] if trouble else []
            before = rows(story, "events")
            if fail_open:
                lease = story.reserve()
                assert story.lease(lease["id"])["status"] == "PENDING"
                assert finalizers(story) == []
                continue
            status, name, message = code(story, "POST", "/v1/leases", story.lease_body())
            assert (status, name) == (503, "enforcement_unavailable")
            assert "try again later" in message
            assert rows(story, "events") == before
            # The service may have agreed: it must hear that there is no lease.
            assert len(finalizers(story)) == 1

    def test_a_change_is_rejected_or_granted_with_fail_open(
        self, enforced: Make, outside: EnforcementService
    ) -> None:
        for fail_open, status in ((False, 503), (True, 200)):
            story = enforced(fail_open=fail_open)
            lease = story.reserve(60, 120)
            outside.answers = [Answer(500), rejection("no")]
            body = {"end_date": story.date(180)}
            answer = story.call("PUT", f"/v1/leases/{lease['id']}", body)
            assert answer.status_code == status
            denial = code(story, "POST", "/v1/leases", story.lease_body())
            assert denial[0] == 403, "a denial counts in both modes"

    def test_a_hold_shorter_than_the_time_limits_of_a_request_is_a_configuration_error(
        self, enforced: Make
    ) -> None:
        with pytest.raises(Misconfigured, match="hold_timeout"):
            enforced(hold_timeout=13.0)


class Died(BaseException):
    """The process is gone."""


class TestHold:
    def die(self, story: Story, hosts: int = 4) -> str:
        """Have a request die while its lease is held; return the lease."""
        enforcer = story.runtime.enforcer
        assert enforcer is not None

        def die(*_: Any) -> None:
            raise Died

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Enforcer, "check_create", die)
            with pytest.raises(Died):
                story.reserve(0, 60, reservations=[host_reservation(hosts, hosts)])
        leases = dump(story.runtime.database)["leases"]
        [held] = [lease for lease in leases if lease["status"] == "CREATING"]
        return str(held["id"])

    def test_a_manager_releases_an_expired_hold_whose_process_died(
        self, story: Story, outside: EnforcementService
    ) -> None:
        before = rows(story)
        held = self.die(story)
        story.clock.advance(59)
        assert story.run() == 0
        assert story.call("POST", "/v1/leases", story.lease_body(1, 60)).status_code == 409
        story.clock.advance(1)
        assert story.run() == 2  # the release, and the notification of the service
        assert [body["lease"]["id"] for body in outside.bodies_of(ON_END)] == [held]
        assert rows(story) == before
        assert story.published() == []

    def test_an_answer_after_the_release_is_too_late(
        self, story: Story, outside: EnforcementService
    ) -> None:
        before = rows(story)

        def meanwhile() -> None:
            story.clock.advance(60)
            story.run()

        outside.answers = [Answer(wait=meanwhile)]
        status, name, message = code(story, "POST", "/v1/leases", story.lease_body())
        assert (status, name) == (503, "enforcement_unavailable")
        assert "took so long" in message
        assert rows(story) == before

    def test_a_late_answer_before_the_release_counts(
        self, story: Story, outside: EnforcementService
    ) -> None:
        outside.answers = [Answer(wait=lambda: story.clock.advance(61))]
        lease = story.reserve()
        story.run()
        assert story.lease(lease["id"])["status"] == "PENDING"

    def test_a_lease_that_ended_before_the_answer_is_rejected(
        self, story: Story, outside: EnforcementService
    ) -> None:
        outside.answers = [Answer(wait=lambda: story.clock.advance(40))]
        asked = {**story.asking(), "start": "now", "end": story.moment(0.5)}
        assert story.problem(400, "POST", "/v2/leases", asked)["code"] == "invalid_date"
        assert rows(story)["leases"] == []
        assert rows(story)["allocations"] == []

    def test_a_start_that_waited_for_the_answer_is_not_late(
        self, enforced: Make, outside: EnforcementService
    ) -> None:
        story = enforced(hold_timeout=100.0)
        outside.answers = [Answer(wait=lambda: story.clock.advance(65))]
        lease = story.reserve(0, 60)
        story.run()
        assert story.lease(lease["id"])["status"] == "ACTIVE"
        assert "lease.catch_up" not in story.event_types(lease["id"])


class TestUpdate:
    def test_the_service_gets_the_current_and_the_changed_lease(
        self, story: Story, outside: EnforcementService
    ) -> None:
        lease = story.reserve(60, 120)
        before = story.hosts_of(lease["id"])
        reservation = {"id": lease["reservations"][0]["id"], "min": 2, "max": 2}
        change = {"reservations": [reservation], "end_date": story.date(180)}
        story.ok("PUT", f"/v1/leases/{lease['id']}", change)
        [asked] = outside.bodies_of(UPDATE)

        def sent(name: str) -> tuple[str, list[str]]:
            [found] = asked[name]["reservations"]
            return asked[name]["end_date"], sorted(host["id"] for host in found["allocations"])

        assert sent("current_lease") == ("2030-01-15T14:00:00", before)
        assert sent("lease") == ("2030-01-15T15:00:00", sorted(story.hosts_of(lease["id"])))
        assert asked["context"]["user_id"] == "admin"
        assert story.event_types(lease["id"]) == ["lease.create", "lease.update"]

    def test_a_denied_change_changes_nothing(
        self, story: Story, outside: EnforcementService
    ) -> None:
        lease = story.reserve(60, 120)
        before = rows(story)
        outside.answers = [rejection("too long")]
        body = {"end_date": story.date(180)}
        answer = code(story, "PUT", f"/v1/leases/{lease['id']}", body)
        assert answer == (403, "enforcement_denied", "too long")
        assert rows(story) == before

    def test_a_rename_needs_no_approval(self, story: Story, outside: EnforcementService) -> None:
        lease = story.reserve()
        story.ok("PUT", f"/v1/leases/{lease['id']}", {"name": "new"})
        story.ok("PUT", f"/v1/leases/{lease['id']}", {})
        assert outside.bodies_of(UPDATE) == []

    def test_ending_a_lease_now_needs_one_approval(
        self, story: Story, outside: EnforcementService
    ) -> None:
        lease = story.reserve(0, 60)
        story.at(1)
        story.clock.advance(0.25)
        story.ok("PUT", f"/v1/leases/{lease['id']}", {"end_date": "now"})
        assert len(outside.bodies_of(UPDATE)) == 1
        story.run()
        assert story.lease(lease["id"])["status"] == "TERMINATED"

    def test_approval_is_repeated_if_another_request_takes_the_proposed_host(
        self, story: Story, outside: EnforcementService
    ) -> None:
        lease = story.reserve(60, 120)
        [mine] = story.hosts_of(lease["id"])

        def meanwhile() -> None:
            proposed = outside.bodies_of(UPDATE)[0]["lease"]["reservations"][0]["allocations"]
            [gained] = [host["id"] for host in proposed if host["id"] != mine]
            wanted = host_reservation(resource_properties=f'["==", "$id", "{gained}"]')
            story.reserve(60, 120, reservations=[wanted])

        outside.answers = [Answer(wait=meanwhile)]
        reservation = {"id": lease["reservations"][0]["id"], "min": 2, "max": 2}
        story.ok("PUT", f"/v1/leases/{lease['id']}", {"reservations": [reservation]})
        _, last = outside.bodies_of(UPDATE)
        sent = [host["id"] for host in last["lease"]["reservations"][0]["allocations"]]
        assert sorted(sent) == sorted(story.hosts_of(lease["id"]))

    def test_approval_is_repeated_at_most_three_times(
        self, story: Story, outside: EnforcementService
    ) -> None:
        lease = story.reserve(60, 120)
        path = f"/v1/leases/{lease['id']}"
        names = iter("abcdef")

        def meanwhile() -> None:
            story.ok("PUT", path, {"name": next(names)})

        outside.answers = [Answer(wait=meanwhile)] * 6
        status, name, _ = code(story, "PUT", path, {"end_date": story.date(180)})
        assert (status, name) == (503, "contention")
        assert len(outside.bodies_of(UPDATE)) == 3
        assert story.lease(lease["id"])["end_date"] == lease["end_date"]


class TestOnEnd:
    def test_the_service_is_notified_once_when_a_lease_ends(
        self, story: Story, outside: EnforcementService
    ) -> None:
        lease = story.reserve(0, 60)
        hosts = story.hosts_of(lease["id"])
        story.at(1)
        assert outside.bodies_of(ON_END) == []
        story.at(60)
        [request] = outside.bodies_of(ON_END)
        assert request["lease"]["id"] == lease["id"]
        [reservation] = request["lease"]["reservations"]
        assert [host["id"] for host in reservation["allocations"]] == hosts
        story.ok("DELETE", f"/v1/leases/{lease['id']}")
        story.run()
        assert len(outside.bodies_of(ON_END)) == 1
        assert finalizers(story) == []

    @pytest.mark.parametrize("started", [False, True])
    def test_the_service_is_notified_when_a_lease_is_deleted_before_its_end(
        self, story: Story, outside: EnforcementService, started: bool
    ) -> None:
        lease = story.reserve(0 if started else 60, 120)
        story.run()
        outside.answers = [rejection("I do mind")]
        story.ok("DELETE", f"/v1/leases/{lease['id']}")
        story.run()
        story.refused(404, "GET", f"/v1/leases/{lease['id']}")
        assert [body["lease"]["id"] for body in outside.bodies_of(ON_END)] == [lease["id"]]
        assert finalizers(story) == [], "a denial is an answer, too"

    def test_an_unavailable_service_blocks_no_end_and_is_notified_later(
        self, story: Story, outside: EnforcementService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("climate.manager.enforcement._PAUSE", 0.0)
        lease = story.reserve(0, 60)
        story.at(1)
        outside.answers = [Answer(500), Answer(500)]
        story.at(60)
        assert story.lease(lease["id"])["status"] == "TERMINATED"
        [waiting] = finalizers(story)
        assert (waiting["attempt"], waiting["status"]) == (1, "UNDONE")
        assert "HTTP 500" in waiting["last_error"]
        story.clock.advance(1)
        story.run()
        story.clock.advance(2)
        story.run()
        assert len(outside.bodies_of(ON_END)) == 3
        assert finalizers(story) == []

    def test_notifying_the_service_is_given_up_after_a_day(
        self, story: Story, outside: EnforcementService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("climate.manager.enforcement._PAUSE", 0.0)
        lease = story.reserve()
        outside.answers = [Answer(500)] * 2
        story.ok("DELETE", f"/v1/leases/{lease['id']}")
        story.run()
        assert len(finalizers(story)) == 1
        story.clock.advance(24 * 3600)
        story.run()
        assert finalizers(story) == []

    def test_an_unavailable_service_is_called_for_one_lease_at_a_time(
        self, story: Story, outside: EnforcementService
    ) -> None:
        made = [story.reserve() for _ in range(4)]
        outside.answers = [Answer(500)] * 4
        for lease in made:
            story.ok("DELETE", f"/v1/leases/{lease['id']}")
        story.run()
        assert len(outside.bodies_of(ON_END)) == 1
        assert sorted(row["attempt"] for row in finalizers(story)) == [0, 0, 0, 1]

    def test_pending_notifications_are_dropped_if_the_service_is_no_longer_configured(
        self, story: Story, tmp_path: Path, make_story: MakeStory
    ) -> None:
        lease = story.reserve()
        story.ok("DELETE", f"/v1/leases/{lease['id']}")
        later = make_story()
        later.run()
        assert finalizers(later) == []


def test_holds_changes_and_notifications_work_on_every_database(
    database_url: str, tmp_path: Path, outside: EnforcementService
) -> None:
    options = {
        "simulated__journal": str(tmp_path / "cloud"),
        "enforcement__external_service_base_endpoint": outside.url,
    }
    with at_work(database_url, **options) as story:
        story.register(4)
        found: list[int] = []

        def meanwhile() -> None:
            body = story.lease_body(0, 60, reservations=[host_reservation(4, 4)])
            found.append(story.call("POST", "/v1/leases", body).status_code)

        outside.answers = [Answer(wait=meanwhile)]
        lease = story.reserve(0, 60)
        assert found == [409]
        before = rows(story)
        outside.answers = [rejection("no"), rejection("no")]
        story.refused(403, "POST", "/v1/leases", story.lease_body())
        path = f"/v1/leases/{lease['id']}"
        story.refused(403, "PUT", path, {"end_date": story.date(90)})
        assert rows(story) == before
        reservation = {"id": lease["reservations"][0]["id"], "min": 2, "max": 2}
        story.ok("PUT", path, {"reservations": [reservation], "end_date": story.date(90)})
        assert len(story.hosts_of(lease["id"])) == 2
        story.run()
        TestHold().die(story, 2)
        story.at(2)
        story.ok("DELETE", path)
        story.run()
        assert len(outside.bodies_of(ON_END)) == 2
        story.dispatcher.upkeep.tidy()
        left = rows(story)
        assert (left["leases"], left["allocations"], left["events"]) == ([], [], [])
