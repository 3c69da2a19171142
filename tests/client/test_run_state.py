"""Starting and stopping reservations with ``on_start: manual``, in Python and as commands."""

import pytest

from climate import client as climate_client
from climate.client import Client, Conflict
from tests.client.conftest import Climate
from tests.conftest import MakeStory
from tests.support.service import Story


@pytest.fixture
def story(make_story: MakeStory) -> Story:
    """Return a service with 100 GiB of silver."""
    story = make_story(manager__plugins=["physical.host.plugin", "virtual.volume.plugin"])
    body = {"resource_type": "virtual:volume", "name": "silver"}
    story.ok("POST", "/v2/resources", {**body, "properties": {"gigabytes": 100}})
    return story


def create(client: Client, name: str, *, count: int = 1) -> list[str]:
    """Create a lease that runs from now on; return its id and those of its reservations."""
    volumes = climate_client.reservation(
        "virtual:volume", volume_type="silver", size=1, on_start="manual"
    )
    lease = client.leases.create(name, duration=3600, reservations=[volumes] * count)
    return [lease.id, *(each.id for each in lease.reservations)]


def test_the_client_starts_and_stops_a_reservation(client: Client, story: Story) -> None:
    lease_id, id_ = create(client, "mine")
    with pytest.raises(Conflict) as refusal:
        client.leases.start_reservation(lease_id, id_)
    assert refusal.value.code == "lease_busy"
    story.run()
    assert client.leases.start_reservation(lease_id, id_).run_state == "starting"
    story.run()
    assert client.leases.get(lease_id).reservations[0].run_state == "started"
    assert client.leases.stop_reservation(lease_id, id_).run_state == "stopping"


def test_the_commands_need_no_reservation_if_only_one_can_be_meant(
    client: Client, climate: Climate, story: Story
) -> None:
    _, id_ = create(client, "mine")
    _, first, second = create(client, "other", count=2)
    story.run()
    json = ("-f", "json")
    started = climate("reservation", "start", "mine", *json).json
    assert (started["id"], started["run_state"]) == (id_, "starting")
    assert climate("reservation", "stop", "mine", id_, *json).json["run_state"] == "stopping"
    refused = climate("reservation", "start", "other")
    assert refused.code == 1
    assert f"lease other has: {first}, {second}" in refused.errors
    assert climate("reservation", "start", "other", second, *json).json["id"] == second
    assert "(active, stopped" in climate("lease", "show", "other").output
