"""Reservations of virtual:volume, on the simulated cloud."""

from collections.abc import Callable
from typing import Any

import pytest

from climate.manager import inventory
from climate.manager.audit import audit
from climate.plugins.volumes.simulated import SimulatedVolumes
from tests.service import Story

PLUGINS = ["physical.host.plugin", "virtual.volume.plugin"]


@pytest.fixture
def story(make_story: Callable[..., Story]) -> Story:
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


def there(story: Story, type_id: str) -> list[int]:
    """Return the GiB of each volume of a type."""
    return [one.size for one in cloud(story).volumes(type_id)]


def refusal(story: Story, *reservations: dict[str, Any]) -> str:
    body = story.lease_body(0, 60, reservations=list(reservations))
    return story.refused(409, "POST", "/v1/leases", body)


def test_a_lease_has_its_volumes_from_its_start_to_its_end(story: Story) -> None:
    lease = story.reserve(0, 60, reservations=[volumes()])
    story.at(1)
    [mine] = story.lease(lease["id"])["reservations"]
    assert mine["reserved_type"] == f"reservation:{mine['id']}"
    assert len(mine["volumes"]) == 2
    assert there(story, mine["id"]) == [10, 10]
    story.at(61)
    assert cloud(story).reserved_types() == []
    assert there(story, mine["id"]) == []


def test_no_more_is_promised_than_there_is(story: Story) -> None:
    story.reserve(0, 60, reservations=[volumes(amount=4)])
    assert "Not enough units available: at least 7 asked for" in refusal(story, volumes(amount=7))
    assert "1 volume types match" in refusal(story, volumes(amount=1, size=61))
    assert "1 volume types match" in refusal(story, volumes(amount=7, size=1))
    story.reserve(0, 60, reservations=[volumes(amount=5), volumes(amount=1)])
    refusal(story, volumes(amount=1, size=1))
    story.reserve(60, 120, reservations=[volumes(amount=10)])


def test_a_type_can_be_asked_for_its_properties(story: Story) -> None:
    story.reserve(0, 60, reservations=[volumes(resource_properties='["==", "$tier", "cold"]')])
    hot = volumes(resource_properties='["==", "$volume_backend_name", "ssd"]')
    assert "0 volume types match" in refusal(story, hot)


def test_one_lease_has_hosts_and_volumes_or_nothing(story: Story) -> None:
    story.register(1)
    host = {
        "resource_type": "physical:host",
        "min": 1,
        "max": 1,
        "hypervisor_properties": "",
        "resource_properties": "",
    }
    refusal(story, host, volumes(amount=11, size=1))
    story.reserve(0, 60, reservations=[host, volumes()])


def test_a_running_reservation_grows_but_stays_what_it_is(story: Story) -> None:
    lease = story.reserve(0, 60, reservations=[volumes()])
    story.at(1)
    [mine] = story.lease(lease["id"])["reservations"]
    path = f"/v1/leases/{lease['id']}"

    def change(**params: Any) -> dict[str, Any]:
        return {"reservations": [{"id": mine["id"], **params}]}

    story.ok("PUT", path, change(amount=3))
    story.at(2)
    assert there(story, mine["id"]) == [10, 10, 10]
    story.refused(409, "PUT", path, change(amount=11))
    story.refused(409, "PUT", path, change(amount=2))
    assert "size" in story.refused(409, "PUT", path, change(size=20))
    assert "cannot change" in story.refused(409, "PUT", path, change(volume_type="gold"))
    story.ok("PUT", path, change(on_end="keep"))
    story.at(61)
    assert there(story, "sim-silver") == [10, 10, 10]


def test_what_was_kept_is_not_booked_again_until_it_is_gone(story: Story) -> None:
    lease = story.reserve(0, 60, reservations=[volumes(amount=6, on_end="keep")])
    story.at(1)
    story.at(61)
    assert story.lease(lease["id"])["status"] == "TERMINATED"
    assert there(story, "sim-silver") == [10] * 6
    inventory.synchronise(story.runtime)
    body = story.lease_body(70, 80, reservations=[volumes(amount=5)])
    story.refused(409, "POST", "/v1/leases", body)
    for one in cloud(story).volumes("sim-silver"):
        cloud(story).delete(one)
    inventory.synchronise(story.runtime)
    story.ok("POST", "/v1/leases", body)


def test_a_volume_that_hangs_takes_its_own_room_and_no_more(story: Story) -> None:
    lease = story.reserve(0, 60, reservations=[volumes(amount=6)])
    story.at(1)
    [mine] = story.lease(lease["id"])["reservations"]
    cloud(story).set_status(mine["volumes"][0], "deleting")
    story.at(75)
    story.at(15)
    [reason] = [one for one in audit(story.runtime) if lease["id"] in one.description]
    assert f"{mine['volumes'][0]} is deleting" in reason.description
    inventory.synchronise(story.runtime)
    story.refused(
        409, "POST", "/v1/leases", story.lease_body(80, 90, reservations=[volumes(amount=10)])
    )
    story.reserve(80, 90, reservations=[volumes(amount=9)])
    cloud(story).set_status(mine["volumes"][0], "error_deleting")
    story.at(60)
    assert story.lease(lease["id"])["status"] == "TERMINATED"
