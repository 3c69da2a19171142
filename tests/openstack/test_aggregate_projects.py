"""The configuration registers hosts; host aggregates restrict them, and give them properties."""

import json
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


def test_clusters_are_reserved_by_their_capabilities(
    deploy: Deploy, cloud: Connection, aggregate: str, lab: Project
) -> None:
    climate = deploy(
        "tenancy",
        [HERE, OTHER],
        manager__sync_interval="1",
        resources__property_types="ha = boolean, drs = boolean",
        nova__aggregate_properties="ha, drs",
        nova__node_capabilities=f"{OTHER}: ha=False, drs=true",
        **{"physical:host__register": f"{HERE}, {OTHER}"},
    )
    climate.start_manager()

    def until_known(capabilities: dict[str, tuple[str | None, str | None]]) -> None:
        def are_known() -> bool:
            hosts = climate.by(climate.administrator).host.list()
            found = {each["service_name"]: (each.get("ha"), each.get("drs")) for each in hosts}
            return all(host["reservable"] for host in hosts) and found == capabilities

        eventually(are_known, f"the hosts have the capabilities {capabilities}")

    highly_available = json.dumps(["=", "$ha", "true"])
    wanted = host_reservation(1, 1, resource_properties=highly_available, before_end="")
    cloud.set_aggregate_metadata(aggregate, {"ha": "true", "drs": "false"})
    until_known({HERE: ("True", "False"), OTHER: ("False", "True")})
    lease = climate.start_lease(lab.member, wanted)
    assert climate.hosts_of(lease["id"]) == [HERE]
    with pytest.raises(BlazarClientException, match="Not enough hosts"):
        climate.reserve(lab.member, reservations=[wanted])
    climate.end(lab.member, lease["id"])
    cloud.set_aggregate_metadata(aggregate, {"ha": "false", "drs": None})
    until_known({HERE: ("False", None), OTHER: ("False", "True")})
    with pytest.raises(BlazarClientException, match="Not enough hosts"):
        climate.reserve(lab.member, reservations=[wanted])
