"""Trusts: made with the lease so that the service acts as its user, revoked after it ends."""

import datetime as dt
import json
from dataclasses import replace
from typing import Any

import pytest

from climate.core.errors import BackendUnavailable, ClimateError, Conflict, Forbidden
from climate.core.lease.model import Lease
from climate.manager.admission.requirements import ReservationRequest
from climate.manager.audit import cloud as auditing
from climate.manager.leases.create import LeaseRequest, Owner, create_lease
from climate.manager.leases.delete import delete_lease
from climate.manager.leases.read import LeaseChanged, get_lease
from climate.manager.leases.reservation_changes import LeaseChange, ReservationChange
from climate.manager.leases.trusts import TrustWatch, check_all
from climate.manager.leases.update import update_lease
from climate.plugins.openstack.trusts import Trust
from tests.support.fake_trusts import Acting, Keystone, trusting
from tests.support.rows import dump
from tests.support.service import Story

ALICE = Owner(user_id="alice", project_id="lab", token="t0ken")
BOB = Owner(user_id="bob", project_id="lab", token="b0b")
GONE = BackendUnavailable("Keystone is away")
HOSTS = {"min": 1, "max": 1, "hypervisor_properties": "", "resource_properties": ""}


@pytest.fixture
def set_up(story: Story) -> tuple[Story, Keystone, Acting]:
    return trusting(story)


@pytest.fixture
def acting(set_up: tuple[Story, Keystone, Acting]) -> Acting:
    return set_up[2]


@pytest.fixture
def keystone(set_up: tuple[Story, Keystone, Acting]) -> Keystone:
    return set_up[1]


@pytest.fixture
def at(set_up: tuple[Story, Keystone, Acting]) -> Story:
    """Return a service that can act as users."""
    return set_up[0]


def asked(before_end: str = "snapshot", hosts: int = 1) -> ReservationRequest:
    params = {**HOSTS, "min": hosts, "max": hosts, "before_end": before_end}
    return ReservationRequest(resource_type="physical:host", params=params)


def reserve(story: Story, *reservations: ReservationRequest, owner: Owner = ALICE) -> Lease:
    start = story.clock.now() + dt.timedelta(hours=1)
    request = LeaseRequest(
        name="lease",
        start=start,
        end=start + dt.timedelta(hours=1),
        reservations=reservations or (asked(),),
    )
    return create_lease(story.runtime, owner, request)


def rows(story: Story) -> Any:
    return {name: found for name, found in dump(story.runtime.database).items() if name != "outbox"}


def trust_of(story: Story, lease: Lease) -> str | None:
    return get_lease(story.runtime, lease.id).trust_id


def test_a_lease_has_a_trust_until_it_ends(at: Story, keystone: Keystone, acting: Acting) -> None:
    lease = reserve(at)
    assert keystone.kept == {"trust-1": ALICE.requester}
    assert acting.arranged == {lease.reservations[0].id: "t0ken"}
    assert at.lease(lease.id)["reservations"][0]["arranged"] == "yes"
    assert reserve(at, asked("")).trust_id is None
    assert trust_of(at, lease) == lease.trust_id == "trust-1"
    at.at(60)
    assert at.lease(lease.id)["status"] == "ACTIVE"
    assert list(keystone.kept) == ["trust-1"]
    at.at(60)
    assert at.lease(lease.id)["status"] == "TERMINATED"
    assert keystone.kept == {}
    assert trust_of(at, lease) is None


def test_the_trust_and_the_token_are_never_shown(at: Story) -> None:
    lease = reserve(at)
    at.at(60)
    shown = [at.lease(lease.id), at.ok("GET", f"/v2/leases/{lease.id}"), at.ok("GET", "/v1/leases")]
    told = [row["payload"] for row in dump(at.runtime.database)["outbox"]]
    assert "trust-1" not in json.dumps([shown, told])
    assert shown[0]["trust_id"] is None
    assert "t0ken" not in json.dumps(dump(at.runtime.database), default=str)
    assert "trust-1" not in repr(lease)


def test_no_log_contains_a_trust_that_cannot_be_revoked(
    at: Story, keystone: Keystone, caplog: pytest.LogCaptureFixture
) -> None:
    lease = reserve(at)
    away = "Unable to connect to http://keystone/v3/OS-TRUST/trusts/trust-1"
    keystone.failing["revoke"] = BackendUnavailable(away)
    delete_lease(at.runtime, lease.id)
    at.run()
    assert "not revoked yet, will try again: Unable to connect" in caplog.text
    [event] = rows(at)["events"]
    assert "trust-1" not in caplog.text + event["last_error"]


def test_a_lease_deleted_before_its_start_leaves_nothing(
    at: Story, keystone: Keystone, acting: Acting
) -> None:
    lease = reserve(at)
    delete_lease(at.runtime, lease.id)
    at.run()
    assert (keystone.kept, acting.arranged) == ({}, {})
    assert rows(at)["leases"] == rows(at)["events"] == []


def test_a_user_who_cannot_delegate_gets_no_lease(at: Story, keystone: Keystone) -> None:
    before = rows(at)
    keystone.failing["make"] = Forbidden("delegated")
    with pytest.raises(Forbidden):
        reserve(at)
    at.run()
    assert rows(at) == before


def test_without_a_token_no_trust_is_made(at: Story) -> None:
    with pytest.raises(Conflict, match="requires a Keystone token"):
        reserve(at, owner=Owner(user_id="alice", project_id="lab"))


@pytest.mark.parametrize("what", ["prepare", "asker died"])
def test_a_failed_preparation_is_undone_with_retries(
    at: Story, keystone: Keystone, acting: Acting, what: str
) -> None:
    before = rows(at)
    acting.failing["prepare"] = GONE if what == "prepare" else SystemExit()  # type: ignore[assignment]
    acting.failing["discard"] = keystone.failing["revoke"] = GONE
    with pytest.raises((ClimateError, SystemExit)):
        reserve(at)
    for _ in range(3):
        at.at(1)
    assert acting.arranged
    assert keystone.kept
    acting.failing.clear()
    keystone.failing.clear()
    at.at(5)
    assert (keystone.kept, acting.arranged) == ({}, {})
    assert rows(at) == before


def test_held_hosts_are_free_before_the_preparation_is_undone(at: Story, acting: Acting) -> None:
    acting.failing.update(prepare=GONE, discard=GONE)
    with pytest.raises(BackendUnavailable):
        reserve(at, asked("", 4))
    acting.failing.pop("prepare")
    reserve(at, asked("", 4))


def test_a_preparation_that_takes_too_long_leaves_nothing(
    at: Story, keystone: Keystone, acting: Acting
) -> None:
    def meanwhile(_lease: Lease) -> None:
        at.at(2)

    before = rows(at)
    acting.meanwhile = meanwhile
    with pytest.raises(BackendUnavailable, match="took so long"):
        reserve(at)
    at.run()
    assert (keystone.kept, acting.arranged) == ({}, {})
    assert rows(at) == before


def test_a_lease_whose_release_began_is_not_confirmed(
    at: Story, keystone: Keystone, acting: Acting
) -> None:
    def meanwhile(_lease: Lease) -> None:
        acting.failing["discard"] = GONE
        at.at(2)
        acting.failing.clear()

    before = rows(at)
    acting.meanwhile = meanwhile
    with pytest.raises(BackendUnavailable, match="took so long"):
        reserve(at)
    at.at(1)
    assert (keystone.kept, acting.arranged) == ({}, {})
    assert rows(at) == before


def test_trusts_are_watched_renewed_and_revoked_on_every_database(story_everywhere: Story) -> None:
    at, keystone, acting = trusting(story_everywhere)
    lease = reserve(at)
    keystone.dead.add("trust-1")
    check_all(at.runtime)
    assert get_lease(at.runtime, lease.id).trust_lost
    keystone.found.append(Trust("trust-1", "alice", "lab", at.clock.now() - dt.timedelta(days=1)))
    assert auditing.audit(at.runtime) == []
    update_lease(at.runtime, lease.id, LeaseChange(), ALICE)
    [leaving] = auditing.audit(at.runtime)
    assert leaving.description.endswith("is not revoked yet")
    at.run()
    assert list(keystone.kept) == ["trust-2"]
    delete_lease(at.runtime, lease.id)
    at.run()
    assert (keystone.kept, acting.arranged) == ({}, {})
    assert rows(at)["leases"] == rows(at)["events"] == []


class TestWatch:
    def look(self, story: Story) -> list[str]:
        check_all(story.runtime)
        return story.event_types(dump(story.runtime.database)["leases"][0]["id"])

    def test_a_lost_trust_is_announced_once_and_once_when_restored(
        self, at: Story, keystone: Keystone
    ) -> None:
        lease = reserve(at)
        assert self.look(at) == ["lease.create"]
        keystone.dead.add("trust-1")
        assert self.look(at) == self.look(at) == ["lease.create", "lease.trust_lost"]
        assert at.lease(lease.id)["degraded"]
        shown = at.ok("GET", f"/v2/leases/{lease.id}")
        assert (shown["degraded"], shown["trust_lost"]) == (True, "the trust is dead: trust")
        keystone.dead.clear()
        assert self.look(at) == self.look(at)
        assert self.look(at)[2:] == ["lease.trust_restored"]
        assert at.ok("GET", f"/v2/leases/{lease.id}")["trust_lost"] is None

    def test_an_unreachable_keystone_means_no_lost_trust(
        self, at: Story, keystone: Keystone
    ) -> None:
        reserve(at)
        keystone.failing["check"] = GONE
        assert self.look(at) == ["lease.create"]

    def test_a_trust_is_checked_before_the_start_of_its_lease(
        self, at: Story, keystone: Keystone
    ) -> None:
        reserve(at)
        keystone.dead.add("trust-1")
        settings = replace(at.runtime.settings, trust_ahead=dt.timedelta(minutes=59))
        later = replace(at.runtime, settings=settings)
        check_all(later)
        assert self.look(at)[-1] == "lease.trust_lost"

    def test_trusts_are_checked_every_five_minutes(self, at: Story, keystone: Keystone) -> None:
        lease, watch = reserve(at), TrustWatch(at.runtime)
        watch.check_if_due()
        keystone.dead.add("trust-1")
        watch.check_if_due()
        assert at.event_types(lease.id) == ["lease.create"]
        at.clock.advance(300)
        watch.check_if_due()
        assert at.event_types(lease.id) == ["lease.create", "lease.trust_lost"]

    @pytest.mark.parametrize("change", [LeaseChange(), LeaseChange(name="new")])
    def test_any_change_by_the_owner_renews_the_trust(
        self, at: Story, keystone: Keystone, change: LeaseChange
    ) -> None:
        lease = reserve(at)
        keystone.dead.add("trust-1")
        self.look(at)
        update_lease(at.runtime, lease.id, LeaseChange(name="bob's"), BOB)
        assert at.lease(lease.id)["degraded"]
        changed = update_lease(at.runtime, lease.id, change, ALICE)
        assert (changed.trust_id, changed.is_degraded) == ("trust-2", False)
        at.run()
        assert list(keystone.kept) == ["trust-2"]
        assert "lease.trust_restored" in at.event_types(lease.id)

    def test_a_change_is_accepted_even_if_the_trust_cannot_be_renewed(
        self, at: Story, keystone: Keystone
    ) -> None:
        lease = reserve(at)
        keystone.dead.add("trust-1")
        self.look(at)
        keystone.failing["make"] = Forbidden("delegated")
        assert update_lease(at.runtime, lease.id, LeaseChange(name="new"), ALICE).name == "new"
        with pytest.raises(Forbidden):
            update_lease(at.runtime, lease.id, LeaseChange(), ALICE)


class TestAudit:
    def test_an_old_trust_without_a_lease_is_revoked(self, at: Story, keystone: Keystone) -> None:
        now = at.clock.now()
        reserve(at)
        for name, minutes in (("trust-1", 60), ("young", 5), ("old", 60)):
            keystone.kept.setdefault(name, ALICE.requester)
            made_at = now - dt.timedelta(minutes=minutes)
            keystone.found.append(Trust(name, "alice", "lab", made_at))
        [found] = auditing.audit(at.runtime)
        assert "made at 2030-01-15 11:00:00, is of no lease" in found.description
        assert auditing.repair(at.runtime, found) is auditing.Repair.DONE
        assert list(keystone.kept) == ["trust-1", "young"]

    def test_a_trust_that_waits_for_its_revocation_is_reported_and_not_repaired(
        self, at: Story, keystone: Keystone
    ) -> None:
        lease = reserve(at)
        keystone.found.append(Trust("trust-1", "alice", "lab", at.clock.now()))
        keystone.failing["revoke"] = GONE
        delete_lease(at.runtime, lease.id)
        at.run()
        [found] = auditing.audit(at.runtime)
        assert found.description.endswith("is not revoked yet")
        assert found.repair is None


class TestChange:
    def change(self, story: Story, lease: Lease, owner: Owner = ALICE) -> Lease:
        params = {"before_end": "snapshot"}
        one = ReservationChange(id=lease.reservations[0].id, resource_type=None, params=params)
        return update_lease(story.runtime, lease.id, LeaseChange(reservations=(one,)), owner)

    def test_a_change_that_needs_a_trust_makes_one(self, at: Story, keystone: Keystone) -> None:
        lease = self.change(at, reserve(at, asked("")))
        assert lease.trust_id == "trust-1"
        self.change(at, lease)
        assert list(keystone.kept) == ["trust-1"]

    def test_only_the_owner_can_change_to_a_reservation_with_a_trust(
        self, at: Story, keystone: Keystone
    ) -> None:
        lease = reserve(at, asked(""))
        with pytest.raises(Forbidden, match="Only user alice of project lab"):
            self.change(at, lease, BOB)
        assert keystone.kept == {}

    def test_a_rejected_change_leaves_no_trust(self, at: Story, keystone: Keystone) -> None:
        lease = reserve(at, asked(""))
        one = ReservationChange(
            id=lease.reservations[0].id,
            resource_type=None,
            params={"before_end": "snapshot", "min": 9, "max": 9},
        )
        with pytest.raises(Conflict):
            update_lease(at.runtime, lease.id, LeaseChange(reservations=(one,)), ALICE)
        assert list(keystone.kept) == ["trust-1"]
        at.run()
        assert keystone.kept == {}
        assert trust_of(at, lease) is None

    def test_an_added_reservation_is_prepared_with_the_token_of_the_change(
        self, at: Story, acting: Acting
    ) -> None:
        lease = reserve(at, asked(""))
        lease = update_lease(at.runtime, lease.id, LeaseChange(added=(asked(),)), ALICE)
        added = lease.reservations[-1]
        assert acting.arranged[added.id] == "t0ken"
        assert added.details["arranged"] == "yes"

    def test_a_change_of_an_outdated_lease_prepares_nothing(
        self, at: Story, acting: Acting, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lease = reserve(at)
        update_lease(at.runtime, lease.id, LeaseChange(name="other"), ALICE)
        monkeypatch.setattr(acting, "prepare", None)
        with pytest.raises(LeaseChanged):
            update_lease(at.runtime, lease.id, LeaseChange(added=(asked(),)), ALICE, lease)

    def test_a_rejected_change_undoes_its_preparations(self, at: Story, acting: Acting) -> None:
        lease = reserve(at)
        with pytest.raises(Conflict):
            update_lease(at.runtime, lease.id, LeaseChange(added=(asked(hosts=99),)), ALICE)
        assert list(acting.arranged) == [lease.reservations[0].id]

    def test_a_prepared_reservation_cannot_be_removed_before_the_start(self, at: Story) -> None:
        lease = reserve(at, asked(), asked())
        gone = LeaseChange(removed=(lease.reservations[0].id,))
        with pytest.raises(Conflict, match="already prepared"):
            update_lease(at.runtime, lease.id, gone, ALICE)
