"""Limits of projects and users; a rejected request changes no row."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from climate.core.errors import InvalidInput
from climate.core.limits import Limits, Scope
from climate.db.limits import Party
from climate.manager.admission.limits import limits
from climate.manager.admission.limits.limits import Account
from tests.conftest import MakeStory
from tests.race.crowd import at_work
from tests.support.rows import dump
from tests.support.service import Story, host_reservation, hosts

ALICE, BOB, EVE = "alice:lab", "bob:lab", "eve:other"
LAB = Party(Scope.PROJECT, "lab")
PARTIES = (LAB, Party(Scope.USER, "alice"))
HOUR = 60

Make = Callable[..., Story]


@pytest.fixture
def limited(make_story: MakeStory, hosts_template: Path, tmp_path: Path) -> Make:
    """Return a maker of services with hosts sim-1 .. sim-4 and limits, given by their names."""

    def make(**values: Any) -> Story:
        shutil.copy(hosts_template, tmp_path / "climate.sqlite")
        shutil.copy(hosts_template.parent / "cloud", tmp_path / "cloud")
        options = {f"limits__{name}": value for name, value in values.items()}
        return make_story(**{"limits__enabled": True, **options})

    return make


def ask(
    story: Story, start: float = 60, end: float = 120, hosts: int = 1, token: str = ALICE
) -> dict[str, Any]:
    body = story.lease_body(start, end, reservations=[host_reservation(hosts, hosts)])
    return dict(story.ok("POST", "/v1/leases", body, token=token)["lease"])


def accounts(story: Story, parties: Sequence[Party] = PARTIES) -> list[Account]:
    return limits.show(story.runtime.store, story.runtime.settings.limits, parties)


def refused(
    story: Story, start: float = 60, end: float = 120, hosts: int = 1, token: str = ALICE
) -> str:
    body = story.lease_body(start, end, reservations=[host_reservation(hosts, hosts)])
    return _check_refused(story, "POST", "/v1/leases", body, token)


def _check_refused(story: Story, method: str, path: str, body: Any, token: str) -> str:
    """See that a request is refused for a limit, and that all rows are as before."""
    before = dump(story.runtime.database)
    response = story.call(method, path, body, token=token)
    assert response.status_code == 403, response.get_data(as_text=True)
    assert response.headers["Climate-Error-Code"] == "limit_exceeded"
    assert dump(story.runtime.database) == before
    return str(response.get_json()["error_message"])


def change(story: Story, lease: dict[str, Any], token: str = ALICE, **fields: Any) -> Any:
    return story.ok("PUT", f"/v1/leases/{lease['id']}", fields, token=token)["lease"]


def change_refused(story: Story, lease: dict[str, Any], token: str = ALICE, **fields: Any) -> str:
    return _check_refused(story, "PUT", f"/v1/leases/{lease['id']}", fields, token)


def grown(lease: dict[str, Any], hosts: int) -> list[dict[str, Any]]:
    return [{"id": lease["reservations"][0]["id"], "min": hosts, "max": hosts}]


class TestLeases:
    def test_a_project_has_a_number_of_leases_and_a_deleted_one_counts_no_more(
        self, limited: Make
    ) -> None:
        story = limited(project_leases=2)
        first = ask(story, 60, 120)
        ask(story, 300, 360, token=BOB)
        assert "2 leases at once are allowed, 2 are taken" in refused(story, 600, 660)
        ask(story, 600, 660, token=EVE)
        story.ok("DELETE", f"/v1/leases/{first['id']}", token=ALICE)
        ask(story, 600, 660)

    def test_a_user_limit_counts_all_projects(self, limited: Make) -> None:
        story = limited(user_leases=1)
        ask(story)
        assert "of user alice" in refused(story, token="alice:other")
        ask(story, token=BOB)

    def test_an_ended_lease_and_one_that_ends_early_count_no_more(self, limited: Make) -> None:
        story = limited(project_leases=1, project_hosts=1)
        ask(story, 0, 60)
        story.at(61)
        lease = ask(story, 0, 60)
        story.at(1)
        story.at(1)
        change(story, lease, end_date="now")
        lease = ask(story, 0, 60)
        story.at(1)
        story.ok("DELETE", f"/v1/leases/{lease['id']}", token=ALICE)
        assert story.lease(lease["id"])["status"] == "DELETING"
        assert ask(story, 2, 60)["status"] == "PENDING", "before a manager ended it"


class TestHosts:
    def test_the_peak_of_hosts_counts_not_their_sum(self, limited: Make) -> None:
        story = limited(project_hosts=2)
        ask(story, 60, 120, hosts=2)
        ask(story, 120, 180, hosts=2, token=BOB)
        assert "2 hosts at any one time are allowed, 2 are taken" in refused(story, 90, 100)
        ask(story, 90, 100, token=EVE)

    def test_allocated_hosts_count_not_the_requested_minimum(self, limited: Make) -> None:
        story = limited(project_hosts=2)
        body = story.lease_body(reservations=[host_reservation(1, 3)])
        assert "this lease needs 3" in _check_refused(story, "POST", "/v1/leases", body, ALICE)

    def test_growing_and_moving_count_and_shrinking_is_always_allowed(self, limited: Make) -> None:
        story = limited(project_hosts=2)
        first, second = ask(story, 60, 120), ask(story, 300, 360, hosts=2)
        change_refused(story, first, reservations=grown(first, 3))
        dates = {"start_date": story.date(310), "end_date": story.date(320)}
        change_refused(story, first, **dates)
        change(story, first, reservations=grown(first, 2))
        limits.set_own(story.runtime.database, LAB, {"hosts": 0})
        change_refused(story, first, end_date=story.date(121))
        change(story, second, reservations=grown(second, 1), end_date=story.date(350))

    def test_a_running_lease_grows_up_to_the_limit(self, limited: Make) -> None:
        story = limited(project_hosts=2)
        lease = ask(story, 0, 60)
        story.at(1)
        change_refused(story, lease, reservations=grown(lease, 3))
        change(story, lease, reservations=grown(lease, 2))
        assert len(story.hosts_of(lease["id"])) == 2

    def test_a_running_lease_is_not_prolonged_into_another_beyond_the_limit(
        self, limited: Make
    ) -> None:
        story = limited(project_hosts=3)
        lease = ask(story, 0, 60)
        [mine] = story.hosts_of(lease["id"])
        others = host_reservation(3, 3, resource_properties=f'["!=", "$id", "{mine}"]')
        body = story.lease_body(120, 180, reservations=[others])
        story.ok("POST", "/v1/leases", body, token=ALICE)
        story.at(1)
        change(story, lease, end_date=story.date(119))
        change_refused(story, lease, end_date=story.date(125))

    def test_a_whole_host_counts_all_its_vcpus(self, limited: Make) -> None:
        story = limited(project_vcpus=80)  # three have 16, the fourth has 64
        ask(story, 60, 120, hosts=2)
        assert "80 vcpus at any one time are allowed" in refused(story, 60, 120, hosts=2)
        ask(story, 120, 180, hosts=1)


class TestHostHours:
    def test_host_hours_count_in_every_window_of_the_period(self, limited: Make) -> None:
        story = limited(project_host_hours=10, period=24 * 3600)
        ask(story, 0, 4 * HOUR, hosts=2)
        assert "in 24 hours" in refused(story, 10 * HOUR, 13 * HOUR)
        ask(story, 10 * HOUR, 12 * HOUR)
        # From then on the first lease leaves the window, two host-hours each hour.
        refused(story, 23 * HOUR, 24 * HOUR)
        ask(story, 24 * HOUR, 28 * HOUR)

    def test_used_host_hours_of_a_deleted_lease_still_count(self, limited: Make) -> None:
        story = limited(project_host_hours=10, period=24 * 3600)
        unused, used = ask(story, 60, 120, hosts=2), ask(story, 0, 6 * HOUR, hosts=1)
        story.ok("DELETE", f"/v1/leases/{unused['id']}", token=ALICE)
        story.run()
        story.at(3 * HOUR)
        story.ok("DELETE", f"/v1/leases/{used['id']}", token=ALICE)
        story.run()
        story.refused(404, "GET", f"/v1/leases/{used['id']}")
        usage = accounts(story)[0].usage
        assert usage == limits.Usage(leases=0, hosts=0, vcpus=0, host_hours=3)
        refused(story, 60, 9 * HOUR)
        ask(story, 60, 8 * HOUR)

    def test_used_host_hours_are_forgotten_after_the_period(self, limited: Make) -> None:
        story = limited(project_host_hours=10, period=24 * 3600)
        lease = ask(story, 0, HOUR)
        story.run()
        story.at(HOUR)
        story.ok("DELETE", f"/v1/leases/{lease['id']}", token=ALICE)
        assert len(dump(story.runtime.database)["past_use"]) == 1
        story.clock.advance(23 * 3600)
        story.dispatcher.upkeep.tidy()
        assert len(dump(story.runtime.database)["past_use"]) == 1
        story.clock.advance(3600)
        story.dispatcher.upkeep.tidy()
        assert dump(story.runtime.database)["past_use"] == []


class TestDates:
    def test_duration_and_horizon_are_limited(self, limited: Make) -> None:
        story = limited(project_duration=3600, user_horizon=10 * 3600)
        assert "may last 3600 seconds, this one would last 7200" in refused(story, 60, 180)
        assert "of user alice" in refused(story, 590, 610)
        lease = ask(story, 60, 120)
        change_refused(story, lease, end_date=story.date(130))
        change(story, lease, start_date=story.date(70), end_date=story.date(130))

    def test_a_running_lease_is_prolonged_only_shortly_before_its_end(self, limited: Make) -> None:
        story = limited(project_extension_window=600, project_extension=1800)
        lease = ask(story, 0, 60)
        story.run()
        assert "which are still 3000 seconds away" in change_refused(
            story, lease, end_date=story.date(90)
        )
        story.at(50)
        change_refused(story, lease, end_date=story.date(41))
        change(story, lease, end_date=story.date(40))


class TestWhoIsLimited:
    def test_own_limits_override_the_default(self, limited: Make) -> None:
        story = limited(project_hosts=1)
        limits.set_own(story.runtime.database, LAB, {"hosts": 3, "leases": 1})
        ask(story, hosts=3)
        refused(story, 300, 360)
        limits.unset_own(story.runtime.database, LAB, ["leases"])
        ask(story, 300, 360)
        limits.set_own(story.runtime.database, LAB, {"hosts": -1})
        ask(story, 600, 660, hosts=4)
        limits.unset_own(story.runtime.database, LAB)
        refused(story, 900, 960, hosts=2)
        refused(story, 900, 960, hosts=2, token=EVE)

    def test_exempt_projects_users_and_roles_are_not_limited(self, limited: Make) -> None:
        for exempt, name in (("project", "lab"), ("user", "alice"), ("role", "Member")):
            story = limited(project_hosts=1, **{f"exempt_{exempt}s": [name]})
            ask(story, hosts=2)
            story.close()

    def test_an_exempt_operator_may_prolong_the_lease_of_a_project(self, limited: Make) -> None:
        story = limited(project_duration=3600, exempt_roles=["admin"])
        lease = ask(story)
        change_refused(story, lease, end_date=story.date(180))
        change(story, lease, token="root:ops:admin", end_date=story.date(180))

    def test_disabled_limits_are_not_enforced(self, story: Story) -> None:
        limits.set_own(story.runtime.database, LAB, {"hosts": 0})
        ask(story)


class TestOpenLeases:
    def test_a_project_has_a_maximum_although_limits_are_disabled(self, limited: Make) -> None:
        story = limited(enabled=False, project_leases=1, project_hosts=0, exempt_users=["root"])
        lease = ask(story)
        refused(story, 120, 180)
        ask(story, 120, 180, token="root:lab")
        story.ok("PUT", f"/v1/leases/{lease['id']}", {"name": "new"}, token=ALICE)
        limits.set_own(story.runtime.database, LAB, {"leases": 3})
        ask(story, 180, 240)
        refused(story, 240, 300)
        ask(story, 240, 300, token=EVE)


class TestAccounts:
    def test_accounts_show_limits_and_usage(self, limited: Make) -> None:
        story = limited(project_leases=-1, project_hosts=3, user_leases=5)
        limits.set_own(story.runtime.database, LAB, {"vcpus": 100})
        ask(story, 0, 60, hosts=2)
        ask(story, 30, 90, token=BOB)
        story.run()
        project, user = accounts(story)
        assert (project.scope, project.owner_id) == (Scope.PROJECT, "lab")
        assert project.limits == Limits(hosts=3, vcpus=100)
        assert project.overrides == {"vcpus": 100}
        assert (project.usage.leases, project.usage.hosts) == (2, 3)
        assert project.usage.host_hours == 3
        assert user.limits == Limits(leases=5)
        assert (user.usage.leases, user.usage.hosts) == (1, 2)

    def test_parties_with_own_limits_are_listed(self, limited: Make) -> None:
        story = limited(project_hosts=3)
        ask(story)  # a row that is only there to be locked
        assert accounts(story, []) == []
        limits.set_own(story.runtime.database, LAB, {"hosts": 1})
        limits.set_own(story.runtime.database, Party(Scope.USER, "eve"), {"hosts": 1})
        found = [(one.scope, one.owner_id) for one in accounts(story, [])]
        assert found == [("project", "lab"), ("user", "eve")]

    def test_invalid_limits_are_rejected(self, limited: Make) -> None:
        story = limited()
        for values in ({"hots": 1}, {"hosts": -2}, {"hosts": 2**31}):
            with pytest.raises(InvalidInput):
                limits.set_own(story.runtime.database, LAB, values)


def test_every_database_counts_alike(database_url: str, tmp_path: Path) -> None:
    allowed = {"leases": 3, "hosts": 3, "vcpus": 999, "host_hours": 10, "duration": 8 * 3600}
    options = {f"limits__project_{name}": value for name, value in allowed.items()}
    options |= {"limits__enabled": True, "limits__user_hosts": 3, "limits__period": 24 * 3600}
    with at_work(database_url, simulated__journal=str(tmp_path / "cloud"), **options) as story:
        story.register(4)
        running, later = ask(story, 0, 2 * HOUR, hosts=2), ask(story, 6 * HOUR, 8 * HOUR)
        refused(story, HOUR, 3 * HOUR, hosts=2)
        story.run()
        change_refused(story, later, reservations=grown(later, 4))
        change(story, later, reservations=grown(later, 2))
        story.at(HOUR)
        story.ok("DELETE", f"/v1/leases/{running['id']}", token=ALICE)
        assert accounts(story)[0].usage.host_hours == 6
        story.run()
        used = accounts(story)
        assert [one.usage for one in used] == [
            limits.Usage(leases=1, hosts=2, vcpus=used[0].usage.vcpus, host_hours=6)
        ] * 2
        assert used[0].usage.vcpus in {32, 80}
        refused(story, HOUR, 3 * HOUR, hosts=3)
        ask(story, HOUR, 3 * HOUR, hosts=2)
        story.clock.advance(24 * 3600)
        story.dispatcher.upkeep.tidy()
        assert dump(story.runtime.database)["past_use"] == []


def test_instances_count_their_own_vcpus_and_no_host(sqlite_url: str, tmp_path: Path) -> None:
    options = {
        "manager__plugins": ["physical.host.plugin", "virtual.instance.plugin"],
        "simulated__journal": str(tmp_path / "cloud"),
        "limits__enabled": True,
        "limits__project_vcpus": 24,
        "limits__project_hosts": 1,
    }
    with at_work(sqlite_url, **options) as story:
        story.register(4)
        size = {"vcpus": 4, "memory_mb": 1024, "disk_gb": 10, "affinity": "None"}
        asked = {"resource_type": "virtual:instance", "resource_properties": "", **size}

        def body(amount: int) -> dict[str, Any]:
            return story.lease_body(60, 120, reservations=[{**asked, "amount": amount}])

        assert "this lease needs 28" in _check_refused(story, "POST", "/v1/leases", body(7), ALICE)
        story.ok("POST", "/v1/leases", body(2), token=ALICE)
        assert "8 are taken, this lease needs 20" in _check_refused(
            story, "POST", "/v1/leases", body(5), ALICE
        )
        small = host_reservation(hypervisor_properties='["==", "$vcpus", "16"]')
        lease = story.ok(
            "POST", "/v1/leases", story.lease_body(60, 120, reservations=[small]), token=ALICE
        )["lease"]
        usage = accounts(story)[0].usage
        assert usage == limits.Usage(leases=2, hosts=1, vcpus=24, host_hours=1)
        _check_refused(story, "POST", "/v1/leases", body(1), ALICE)
        story.ok("DELETE", f"/v1/leases/{lease['id']}", token=ALICE)
        story.ok("POST", "/v1/leases", body(4), token=ALICE)


def test_host_hours_of_a_removed_reservation_still_count(limited: Make) -> None:
    story = limited(project_host_hours=11)
    lease = ask(story, 0, 10 * HOUR)
    story.run()
    story.at(9 * HOUR)
    removed = [lease["reservations"][0]["id"]]
    change = {"remove_reservations": removed, "add_reservations": [hosts(1)]}
    story.ok("PATCH", f"/v2/leases/{lease['id']}", change, token=ALICE)
    story.run()
    [project, _] = story.ok("GET", "/v2/limits", token=ALICE)["parties"]
    assert project["used"]["host_hours"] == 9 + 1
    refused(story, 0, 2 * HOUR)
    ask(story, 0, 1 * HOUR)


def _alternatives(story: Story, method: str, path: str, body: dict[str, Any]) -> list[str]:
    refusal = story.problem(409, method, path, body, token=ALICE)
    return [one["differs"] for one in refusal["alternatives"]]


def test_alternatives_respect_limits(limited: Make) -> None:
    story = limited(project_hosts=3, project_vcpus=100, project_horizon=4 * 3600)
    ask(story, 60, 180, hosts=2, token=EVE)
    lease = story.asking(60, 180, reservations=[hosts(3, 3)])
    assert _alternatives(story, "POST", "/v2/leases", lease) == ["fewer"]
    soon = story.asking(60, 120, reservations=[hosts(3, 3)])
    assert _alternatives(story, "POST", "/v2/leases", soon) == ["later", "fewer"]
    whole = story.asking(60, 120, reservations=[hosts(4, 4)])
    assert _alternatives(story, "POST", "/v2/leases", whole) == ["fewer"]


def test_alternatives_to_a_change_respect_limits(limited: Make) -> None:
    story = limited(project_hosts=2, project_horizon=4 * 3600, exempt_projects=["other"])
    ask(story, 120, 180, hosts=3, token=EVE)
    mine = ask(story, 60, 120, hosts=2)["id"]
    change = {"end": story.moment(150)}
    assert _alternatives(story, "PATCH", f"/v2/leases/{mine}", change) == ["shorter", "fewer"]


# Windows in which a lease would fit.


def windows(story: Story, count: int, token: str = ALICE, **fields: Any) -> tuple[list[str], Any]:
    """Return the starts of the windows that limits allow, and what they forbid."""
    body = {
        "reservations": [hosts(count, count)],
        "duration": 3600,
        "end_by": "2030-01-15T18:00:00Z",
        **fields,
    }
    found = story.ok("POST", "/v2/availability/search", body, token=token)
    return [offer["start"][11:16] for offer in found["windows"]], found["forbidden"]


def test_a_search_offers_only_windows_that_limits_allow(limited: Make) -> None:
    story = limited(project_hosts=3, project_leases=2, exempt_roles="operator")
    ask(story, 0, 120, hosts=2, token=BOB)
    # Alone free from the start, and with the lease of the project from 14:00 on.
    assert windows(story, 1) == (["12:00"], [])
    starts, forbidden = windows(story, 2)
    assert (starts, forbidden) == (["14:00"], [])
    body = {"name": "lease", "start": "2030-01-15T14:00:00Z", "duration": 3600}
    reservation = {"reservations": [hosts(2, 2)]}
    dry_run = "/v2/leases?dry_run=true"
    assert story.ok("POST", dry_run, {**body, **reservation}, token=ALICE)["admitted"]
    starts, forbidden = windows(story, 4)
    assert starts == []
    assert [item["start"][11:16] for item in forbidden] == ["14:00"]
    assert "Limit hosts of project lab: 3 hosts" in forbidden[0]["detail"]
    assert windows(story, 4, "eve:lab:operator,member") == (["14:00"], [])
    ask(story, 300, 301)
    starts, forbidden = windows(story, 1)
    assert starts == []
    assert "Limit leases of project lab" in forbidden[0]["detail"]


def test_a_search_waits_until_host_hours_no_longer_count(limited: Make) -> None:
    story = limited(project_host_hours=2, period=4 * 3600)
    ask(story, 0, 120)
    assert windows(story, 1, duration=7200) == (["16:00"], [])
    assert story.ok("POST", "/v2/leases?dry_run=true", at_four(7200), token=ALICE)["admitted"]
    assert story.problem(403, "POST", "/v2/leases?dry_run=true", at_four(7201), token=ALICE)


def at_four(duration: int) -> dict[str, Any]:
    start = "2030-01-15T16:00:00Z"
    return {"name": "l", "start": start, "duration": duration, "reservations": [hosts(1, 1)]}
