"""The configuration registers hosts; the operator's host aggregates restrict them to projects."""

import uuid
from collections.abc import Iterator

import pytest
from blazarclient.exception import BlazarClientException
from openstack.connection import Connection

from tests.openstack import settings
from tests.openstack.accounts import Project
from tests.openstack.conftest import Deploy
from tests.support.process import eventually
from tests.support.service import host_reservation

HERE, OTHER = settings.HOSTS[:2]


@pytest.fixture
def aggregate(cloud: Connection) -> Iterator[str]:
    """Return the name of a host aggregate that contains HERE."""
    name = f"climate-test-{uuid.uuid4().hex}"
    made = cloud.create_aggregate(name)
    cloud.add_host_to_aggregate(made.id, HERE)
    yield name
    cloud.remove_host_from_aggregate(made.id, HERE)
    cloud.delete_aggregate(made.id)


def test_only_the_projects_of_an_aggregate_reserve_its_hosts(
    deploy: Deploy, cloud: Connection, aggregate: str, lab: Project, others: Project
) -> None:
    climate = deploy(
        "tenancy",
        [HERE, OTHER],
        manager__sync_interval="1",
        resources__project_restrictions="true",
        **{"physical:host__register": f"{HERE}, {OTHER}"},
    )
    climate.start_manager()
    metadata = {"climate:allowed_projects": lab.id}
    cloud.set_aggregate_metadata(aggregate, metadata)

    def is_restricted() -> bool:
        hosts = climate.by(climate.administrator).host.list()
        allowed = {host["service_name"]: host.get("allowed_projects") for host in hosts}
        are_up = all(host["reservable"] for host in hosts)  # a busy machine delays heartbeats
        return are_up and allowed == {HERE: lab.id, OTHER: None}

    eventually(is_restricted, "both hosts are registered, and the aggregate restricts one")
    both = host_reservation(2, 2, before_end="")
    with pytest.raises(BlazarClientException, match="Not enough hosts"):
        climate.reserve(others.member, reservations=[both])
    lease = climate.reserve(lab.member, reservations=[both])
    climate.until(lab.member, lease["id"], "ACTIVE")
    climate.end(lab.member, lease["id"])
