"""A manager may die at any step of booting servers, or of keeping images of them."""

from typing import Any

import pytest
from openstack.connection import Connection

from tests.openstack import guests
from tests.openstack.accounts import Project
from tests.openstack.conftest import Deploy, MakeProject
from tests.openstack.deployment import Deployment
from tests.openstack.nova_proxy import NovaProxy
from tests.openstack.test_killed import HOSTS, InstanceStory, tell_all

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def lab(project: MakeProject) -> Project:
    """Return the project whose leases these are."""
    return project("killed")


class ServerStory(InstanceStory):
    """Servers that climate boots, one on each of two hosts, and keeps images of."""

    def __init__(self, climate: Deployment, cloud: NovaProxy, lab: Project) -> None:
        _, image = guests.smallest(lab.member.cloud)
        server = {"imageRef": image, "networks": "none", "name": "web"}
        life = {"on_start": "create", "on_end": "snapshot", "server": server}
        self.asked = {**InstanceStory.asked, **life}  # type: ignore[misc]
        super().__init__(climate, cloud, lab)

    def _use(self, reservation_id: str) -> None:
        """They are there: just as many as were asked for, as their user."""
        found = list(self._lab.member.cloud.compute.servers())
        assert sorted(one.name for one in found) == ["web-1", "web-2"]
        assert {one.status for one in found} == {"ACTIVE"}
        assert {one.user_id for one in found} == {self._lab.member.user_id}

    def images(self, cloud: Connection) -> list[Any]:
        """Return the images that the project has of the servers of all leases."""
        return list(cloud.image.images(owner=self._lab.id))


def test_servers_are_booted_once_and_images_kept_once_whatever_step_a_manager_is_killed_at(
    deploy: Deploy, nova: NovaProxy, lab: Project, cloud: Connection
) -> None:
    climate = deploy(
        "blazar",
        nova__endpoint_override=nova.url,
        manager__plugins="physical.host.plugin,virtual.instance.plugin",
        manager__claim_timeout=1,
        manager__minutes_before_end_lease=0,
    )
    climate.register(*HOSTS[:2])
    story = ServerStory(climate, nova, lab)
    try:
        starting, ending = tell_all(story)
        assert starting.count("POST servers server") == len(HOSTS[:2])
        assert ending.count("POST servers action createImage") == len(HOSTS[:2])
        by_server = {one.properties["climate_server"] for one in story.images(cloud)}
        assert len(by_server) == len(story.images(cloud))
    finally:
        for image in story.images(cloud):
            cloud.image.delete_image(image)
