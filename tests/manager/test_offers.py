"""Accepting an offer calls the services that creating a lease calls, and may fail like it."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from climate.core.errors import BackendUnavailable, ClimateError, Forbidden
from climate.core.lease.model import Lease
from climate.manager.audit.invariants import violations
from climate.manager.enforcement import Enforcer
from climate.manager.leases.create import LeaseRequest, Owner
from climate.manager.offers import accept_offer, check_open, create_offer, get_offer
from tests.conftest import MakeStory
from tests.manager.leases.test_trusts import ALICE, BOB, asked
from tests.support import enforcement
from tests.support.enforcement import Answer, EnforcementService, rejection
from tests.support.fake_trusts import trusting
from tests.support.rows import dump
from tests.support.service import Story

OFFERS = "/v2/offers"
CREATE, ON_END = "/check-create", "/on-end"


@pytest.fixture
def outside() -> Iterator[EnforcementService]:
    with enforcement.serving() as made:
        yield made


@pytest.fixture
def enforced(
    make_story: MakeStory, hosts_template: Path, tmp_path: Path, outside: EnforcementService
) -> Story:
    """Return a service whose leases the enforcement service decides about."""
    shutil.copy(hosts_template, tmp_path / "climate.sqlite")
    shutil.copy(hosts_template.parent / "cloud", tmp_path / "cloud")
    return make_story(enforcement__external_service_base_endpoint=outside.url)


def make(story: Story) -> str:
    return str(story.ok("POST", OFFERS, story.asking())["id"])


def accept(story: Story, id_: str, key: str = "key") -> Any:
    return story.call("POST", f"{OFFERS}/{id_}/accept", headers={"Idempotency-Key": key})


def booked(story: Story) -> int:
    return len(dump(story.runtime.database)["allocations"])


def told(story: Story, id_: str) -> list[str]:
    return [kind for kind in story.event_types(id_) if kind.startswith(("offer.", "lease.c"))]


class TestEnforcement:
    def test_the_service_decides_when_the_offer_is_accepted(
        self, enforced: Story, outside: EnforcementService
    ) -> None:
        id_ = make(enforced)
        assert outside.asked == []
        first, again = accept(enforced, id_), accept(enforced, id_)
        assert first.status_code == 201
        assert again.get_data() == first.get_data()
        [sent] = outside.bodies_of(CREATE)
        assert sent["lease"]["id"] == id_
        assert enforced.lease(id_)["status"] == "PENDING"
        assert told(enforced, id_) == ["offer.made", "offer.accepted", "lease.create"]
        assert list(violations(enforced.runtime.store)) == []

    @pytest.mark.parametrize(
        ("answer", "status"), [(rejection("too expensive"), 403), (Answer(500), 503)]
    )
    def test_a_refusal_deletes_the_offer(
        self, enforced: Story, outside: EnforcementService, answer: Answer, status: int
    ) -> None:
        id_ = make(enforced)
        outside.answers = [answer]
        assert accept(enforced, id_).status_code == status
        assert booked(enforced) == 0
        assert accept(enforced, id_).status_code == 404, "the key is free for a new decision"
        assert told(enforced, id_) == ["offer.made", "offer.deleted"]
        enforced.run()
        assert len(outside.bodies_of(ON_END)) == (status == 503), "the service may have agreed"

    def test_an_expired_offer_is_not_reported_to_the_service(
        self, enforced: Story, outside: EnforcementService
    ) -> None:
        make(enforced)
        enforced.at(5)
        assert booked(enforced) == 0
        assert outside.asked == []

    def test_the_hold_is_extended_and_other_requests_are_rejected_meanwhile(
        self, enforced: Story, outside: EnforcementService
    ) -> None:
        id_ = make(enforced)
        codes = []

        def meanwhile() -> None:
            for method, path, key in (
                ("POST", "/accept", "key"),
                ("POST", "/accept", "other"),
                ("DELETE", "", "-"),
                ("GET", "", "-"),
            ):
                found = enforced.call(
                    method, f"{OFFERS}/{id_}{path}", headers={"Idempotency-Key": key}
                )
                codes.append(found.get_json()["code"])
            assert enforced.ok("GET", OFFERS)["offers"] == []
            assert list(violations(enforced.runtime.store)) == []
            enforced.clock.advance(30)
            assert enforced.run() == 0, "the offer would have expired now"

        enforced.clock.advance(299)
        outside.answers = [Answer(wait=meanwhile)]
        assert accept(enforced, id_).status_code == 201
        assert codes == ["request_under_way", *["lease_busy"] * 3]
        assert enforced.lease(id_)["status"] == "PENDING"

    def test_a_manager_releases_an_offer_whose_acceptance_died(
        self, enforced: Story, outside: EnforcementService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Died(BaseException):
            """The process is gone."""

        def die(*_: Any) -> None:
            raise Died

        id_ = make(enforced)
        monkeypatch.setattr(Enforcer, "check_create", die)
        with pytest.raises(Died):
            accept(enforced, id_)
        monkeypatch.undo()
        enforced.clock.advance(59)
        assert (enforced.run(), booked(enforced)) == (0, 1)
        assert accept(enforced, id_).status_code == 409
        enforced.clock.advance(1)
        assert enforced.run() == 2  # the release, and the report to the service
        assert booked(enforced) == 0
        assert accept(enforced, id_).status_code == 410
        assert told(enforced, id_) == ["offer.made", "offer.expired"]
        assert len(outside.bodies_of(ON_END)) == 1


class TestTrusts:
    def offer(self, story: Story, owner: Owner = ALICE) -> Lease:
        request = LeaseRequest(
            name="lease",
            start=story.clock.now(),
            end=story.clock.now() + story.runtime.settings.offers.longest * 12,
            reservations=(asked(),),
        )
        return create_offer(story.runtime, owner, request, story.runtime.settings.offers.longest)

    def test_a_trust_is_made_by_the_acceptance(self, story: Story) -> None:
        story, keystone, acting = trusting(story)
        offer = self.offer(story)
        assert (keystone.kept, acting.arranged) == ({}, {})
        lease = accept_offer(story.runtime, ALICE, offer)
        assert keystone.kept == {"trust-1": ALICE.requester}
        assert lease.trust_id == "trust-1"
        assert story.lease(lease.id)["reservations"][0]["arranged"] == "yes"

    def test_only_the_user_for_whom_climate_acts_accepts(self, story: Story) -> None:
        story, _, _ = trusting(story)
        offer = self.offer(story)
        with pytest.raises(Forbidden, match="Only user alice"):
            accept_offer(story.runtime, BOB, offer)
        found = get_offer(story.runtime, offer.id)
        assert check_open(found, story.clock.now()) == offer

    def test_a_failed_preparation_frees_the_capacity_and_is_undone(self, story: Story) -> None:
        story, keystone, acting = trusting(story)
        offer = self.offer(story)
        acting.failing["prepare"] = BackendUnavailable("the cloud is away")
        with pytest.raises(ClimateError):
            accept_offer(story.runtime, ALICE, offer)
        assert booked(story) == 0
        assert list(violations(story.runtime.store)) == []
        story.run()
        story.run()
        assert dump(story.runtime.database)["leases"] == []
        assert keystone.kept == {}
        assert told(story, offer.id) == ["offer.made", "offer.expired"]
