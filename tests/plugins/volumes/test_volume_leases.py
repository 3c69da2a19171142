"""Leases of virtual:volume on the simulated cloud."""

from typing import Any

import pytest

from climate.manager.audit.cloud import audit
from climate.manager.resources import inventory_sync as inventory
from climate.plugins.volumes.simulated import SimulatedVolumes
from tests.conftest import MakeStory
from tests.support.service import Story, host_reservation

PLUGINS = ["physical.host.plugin", "virtual.volume.plugin"]


@pytest.fixture
def story(make_story: MakeStory) -> Story:
    """Return a service with 100 GiB of silver, for ten volumes at most."""
    story = make_story(manager__plugins=PLUGINS)
    silver = {"gigabytes": 100, "volumes": 10, "tier": "cold"}
    body = {"resource_type": "virtual:volume", "name": "silver", "properties": silver}
    story.ok("POST", "/v2/resources", body)
    return story


def volumes(**params: Any) -> dict[str, Any]:
    known = {"volume_type": "silver", "amount": 2, "size": 10}
    return {"resource_type": "virtual:volume", **known, **params}


def cloud(story: Story) -> SimulatedVolumes:
    found: SimulatedVolumes = story.runtime.plugins["virtual:volume"].cloud  # type: ignore[attr-defined]
    return found


def sizes(story: Story, type_id: str) -> list[int]:
    return [volume.size for volume in cloud(story).volumes(type_id)]


def rejected(story: Story, *reservations: dict[str, Any]) -> str:
    body = story.lease_body(0, 60, reservations=list(reservations))
    return story.refused(409, "POST", "/v1/leases", body)


def test_a_lease_has_volumes_from_start_to_end(story: Story) -> None:
    lease = story.reserve(0, 60, reservations=[volumes()])
    story.at(1)
    (reservation,) = story.lease(lease["id"])["reservations"]
    assert reservation["reserved_type"] == f"reservation:{reservation['id']}"
    assert len(reservation["volumes"]) == 2
    assert sizes(story, reservation["id"]) == [10, 10]
    story.at(61)
    assert cloud(story).reserved_types() == []
    assert sizes(story, reservation["id"]) == []


def test_admits_volumes_as_far_as_size_and_number_allow(story: Story) -> None:
    story.reserve(0, 60, reservations=[volumes(amount=4)])
    assert "Not enough units available: at least 7 requested" in rejected(story, volumes(amount=7))
    assert "1 volume types match" in rejected(story, volumes(amount=1, size=61))
    assert "1 volume types match" in rejected(story, volumes(amount=7, size=1))
    story.reserve(0, 60, reservations=[volumes(amount=5), volumes(amount=1)])
    rejected(story, volumes(amount=1, size=1))
    story.reserve(60, 120, reservations=[volumes(amount=10)])
    cold, ssd = '["==", "$tier", "cold"]', '["==", "$volume_backend_name", "ssd"]'
    assert "0 volume types match" in rejected(story, volumes(resource_properties=ssd))
    story.reserve(120, 180, reservations=[volumes(resource_properties=cold)])


def test_a_limit_counts_the_size_of_volumes(make_story: MakeStory) -> None:
    story = make_story(manager__plugins=PLUGINS, limits__enabled=True, limits__project_gigabytes=60)
    silver = {"gigabytes": 100, "volumes": 10}
    body = {"resource_type": "virtual:volume", "name": "silver", "properties": silver}
    story.ok("POST", "/v2/resources", body)
    story.reserve(0, 60, reservations=[volumes(amount=3)])
    story.reserve(60, 120, reservations=[volumes(amount=6)])
    body = story.lease_body(0, 60, reservations=[volumes(amount=4)])
    message = story.refused(403, "POST", "/v1/leases", body)
    assert "60 GiB at any one time are allowed, 30 are taken, this lease needs 40" in message
    limits = story.ok("GET", "/v2/limits")["parties"][0]
    assert (limits["limits"]["gigabytes"], limits["used"]["gigabytes"]) == (60, 60)


def test_hosts_and_volumes_are_admitted_together(story: Story) -> None:
    story.register(1)
    rejected(story, host_reservation(), volumes(amount=11, size=1))
    story.reserve(0, 60, reservations=[host_reservation(), volumes()])


def test_an_active_reservation_grows_and_keeps_its_size(story: Story) -> None:
    lease = story.reserve(0, 60, reservations=[volumes()])
    story.at(1)
    (reservation,) = story.lease(lease["id"])["reservations"]
    path = f"/v1/leases/{lease['id']}"

    def change(**params: Any) -> dict[str, Any]:
        return {"reservations": [{"id": reservation["id"], **params}]}

    story.ok("PUT", path, change(amount=3))
    story.at(2)
    assert sizes(story, reservation["id"]) == [10, 10, 10]
    story.refused(409, "PUT", path, change(amount=11))
    story.refused(409, "PUT", path, change(amount=2))
    assert "size" in story.refused(409, "PUT", path, change(size=20))
    assert "cannot change" in story.refused(409, "PUT", path, change(volume_type="gold"))
    story.ok("PUT", path, change(on_end="keep"))
    story.at(61)
    assert sizes(story, "sim-silver") == [10, 10, 10]


def test_kept_volumes_use_capacity_until_they_are_deleted(story: Story) -> None:
    lease = story.reserve(0, 60, reservations=[volumes(amount=6, on_end="keep")])
    story.at(1)
    story.at(61)
    assert story.lease(lease["id"])["status"] == "TERMINATED"
    assert sizes(story, "sim-silver") == [10] * 6
    inventory.synchronise(story.runtime)
    body = story.lease_body(70, 80, reservations=[volumes(amount=5)])
    story.refused(409, "POST", "/v1/leases", body)
    for volume in cloud(story).volumes("sim-silver"):
        cloud(story).delete(volume)
    inventory.synchronise(story.runtime)
    story.ok("POST", "/v1/leases", body)


def test_a_volume_that_cannot_be_deleted_uses_only_its_own_capacity(story: Story) -> None:
    lease = story.reserve(0, 60, reservations=[volumes(amount=6)])
    story.at(1)
    (reservation,) = story.lease(lease["id"])["reservations"]
    cloud(story).set_status(reservation["volumes"][0], "deleting")
    story.at(75)
    story.at(15)
    (drift,) = [drift for drift in audit(story.runtime) if lease["id"] in drift.description]
    assert f"{reservation['volumes'][0]} is deleting" in drift.description
    inventory.synchronise(story.runtime)
    story.refused(
        409, "POST", "/v1/leases", story.lease_body(80, 90, reservations=[volumes(amount=10)])
    )
    story.reserve(80, 90, reservations=[volumes(amount=9)])
    cloud(story).set_status(reservation["volumes"][0], "error_deleting")
    story.at(60)
    assert story.lease(lease["id"])["status"] == "TERMINATED"
