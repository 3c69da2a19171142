"""Properties from Placement select hosts: traits, custom resource classes, nested providers."""

import json
import uuid
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest
from blazarclient.exception import BlazarClientException
from openstack.connection import Connection

from tests.openstack import settings
from tests.openstack.accounts import Project
from tests.openstack.conftest import Deploy
from tests.support.process import eventually
from tests.support.service import host_reservation

HERE, OTHER = settings.HOSTS[:2]
TRAIT = f"CUSTOM_CLIMATE_{uuid.uuid4().hex.upper()}"
CLASS = f"CUSTOM_CLIMATE_{uuid.uuid4().hex.upper()[:16]}"


@pytest.fixture
def _provider(cloud: Connection) -> Iterator[None]:
    """Give HERE a trait, and a child provider with two units of a resource class."""
    placement = cloud.placement
    nodes = cloud.compute.hypervisors(True)
    [root] = [node.id for node in nodes if node.service_details["host"] == HERE]
    path, child = f"/resource_providers/{root}/traits", str(uuid.uuid4())
    put(placement, f"/traits/{TRAIT}")
    put(placement, f"/resource_classes/{CLASS}")
    change_traits(placement, path, add=TRAIT)
    made = {"name": f"climate-test-{child}", "uuid": child, "parent_provider_uuid": root}
    placement.post("/resource_providers", json=made, microversion="1.38").raise_for_status()
    inventory = {"resource_provider_generation": 0, "inventories": {CLASS: {"total": 2}}}
    put(placement, f"/resource_providers/{child}/inventories", inventory)
    yield
    change_traits(placement, path, remove=TRAIT)
    for gone in (f"/resource_providers/{child}", f"/traits/{TRAIT}", f"/resource_classes/{CLASS}"):
        placement.delete(gone, microversion="1.38").raise_for_status()


def put(placement: Any, path: str, body: Any = None) -> None:
    placement.put(path, json=body, microversion="1.38").raise_for_status()


def change_traits(placement: Any, path: str, add: str = "", remove: str = "") -> None:
    # Nova may write in between, which Placement notices.
    for _ in range(5):
        present = placement.get(path, microversion="1.38").json()
        present["traits"] = sorted({*present["traits"], add} - {remove, ""})
        answer = placement.put(path, json=present, microversion="1.38")
        if answer.status_code != HTTPStatus.CONFLICT:
            break
    answer.raise_for_status()


@pytest.mark.usefixtures("_provider")
def test_properties_from_placement_select_hosts(deploy: Deploy, lab: Project) -> None:
    climate = deploy("tenancy", [HERE, OTHER], manager__sync_interval="1")
    climate.start_manager()
    climate.register(HERE, OTHER)

    def rejection() -> bool:
        hosts = climate.by(climate.administrator).host.list()
        [here] = [host for host in hosts if host["service_name"] == HERE]
        return (here.get(f"trait:{TRAIT}"), here.get(f"resources:{CLASS}")) == ("True", "2")

    eventually(rejection, "Placement is heard")
    for specs, expected in [
        ({f"trait:{TRAIT}": "required"}, HERE),
        ({f"trait:{TRAIT}": "forbidden"}, OTHER),
        ({f"resources:{CLASS}": "2"}, HERE),
    ]:
        wanted = host_reservation(1, 1, resource_properties=json.dumps(specs), before_end="")
        lease = climate.reserve(lab.member, reservations=[wanted])
        assert climate.hosts_of(lease["id"]) == [expected]
        climate.until(lab.member, lease["id"], "ACTIVE")
        climate.end(lab.member, lease["id"])
    three = json.dumps({f"resources:{CLASS}": "3"})
    wanted = host_reservation(1, 1, resource_properties=three, before_end="")
    with pytest.raises(BlazarClientException, match="Not enough hosts"):
        climate.reserve(lab.member, reservations=[wanted])
