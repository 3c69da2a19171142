"""Two projects with leases on one cloud: neither sees, changes or uses the other's."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from blazarclient.exception import BlazarClientException

from tests.openstack import settings, traces
from tests.openstack.accounts import Account, Project
from tests.openstack.conftest import Deploy, MakeProject
from tests.openstack.deployment import Deployment
from tests.openstack.landing import Lander

HOSTS = settings.HOSTS[:2]
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def pair(project: MakeProject) -> tuple[Project, Project]:
    return project("one"), project("other")


def rejection_status(ask: Callable[[], Any]) -> int:
    """Return the status with which a request of python-blazarclient is rejected."""
    with pytest.raises(BlazarClientException) as refusal:
        ask()
    return int(refusal.value.kwargs["code"])


def answers(climate: Deployment, lease_id: str, stranger: Account) -> list[int]:
    """Return the status of each kind of request about a lease."""
    leases, http = climate.by(stranger).lease, climate.http(stranger)
    return [
        rejection_status(lambda: leases.get(lease_id)),
        rejection_status(lambda: leases.update(lease_id, name="mine")),
        rejection_status(lambda: leases.update(lease_id, prolong_for="1h")),
        rejection_status(lambda: leases.delete(lease_id)),
        http.call("PUT", f"/v1/leases/{lease_id}", {"end_date": "now"}).status_code,
    ]


def check_hidden(climate: Deployment, lease_id: str, strangers: Project) -> None:
    """Check that another project cannot find the lease."""
    assert answers(climate, lease_id, strangers.member) == 5 * [404]
    # Readers may change nothing at all; whether there is such a lease, they do not learn.
    for any_id in (lease_id, "no-such-lease"):
        assert answers(climate, any_id, strangers.reader) == [404, 403, 404, 403, 403]
    for stranger in (strangers.reader, strangers.member):
        assert lease_id not in [item["id"] for item in climate.by(stranger).lease.list()]
        assert climate.http(stranger).event_types(lease_id) == []


@pytest.mark.parametrize("isolation", ["blazar", "tenancy"])
def test_a_project_neither_sees_nor_changes_nor_uses_leases_of_another(
    isolation: str, deploy: Deploy, lander: Lander, pair: tuple[Project, Project]
) -> None:
    climate = deploy(isolation)
    climate.start_manager()
    climate.register(*HOSTS)
    leases = {project.name: climate.reserve(project.member) for project in pair}
    for mine, theirs in (pair, pair[::-1]):
        lease = leases[mine.name]
        before = climate.until(mine.reader, lease["id"], "ACTIVE")
        assert lease["project_id"] == mine.id
        assert [item["id"] for item in climate.by(mine.reader).lease.list()] == [lease["id"]]
        check_hidden(climate, lease["id"], theirs)
        assert climate.by(mine.reader).lease.get(lease["id"]) == before
        [host], hint = climate.hosts_of(lease["id"]), climate.hint(lease)
        assert lander.can_get_onto(mine, host, hint)
        assert not lander.can_get_onto(theirs, host, hint)
        assert not lander.can_get_onto(theirs, host)


@pytest.mark.parametrize(
    "isolation",
    ["blazar", pytest.param("tenancy", marks=pytest.mark.nightly("takes 8 seconds more"))],
)
def test_the_end_of_a_lease_does_not_affect_another_project(
    isolation: str, deploy: Deploy, lander: Lander, pair: tuple[Project, Project]
) -> None:
    climate = deploy(isolation)
    climate.start_manager()
    climate.register(*HOSTS)
    kept, ended = (climate.reserve(project.member) for project in pair)
    for project, lease in zip(pair, (kept, ended), strict=True):
        climate.until(project.member, lease["id"], "ACTIVE")
        [host], hint = climate.hosts_of(lease["id"]), climate.hint(lease)
        assert lander.can_get_onto(project, host, hint)
    [host] = climate.hosts_of(kept["id"])
    before = traces.servers_on(climate.cloud, [host])
    climate.end(pair[1].member, ended["id"])
    assert traces.servers_on(climate.cloud) == before
    assert traces.holders(climate.cloud, host) == [kept["reservations"][0]["id"]]
    climate.end(pair[0].member, kept["id"])


@pytest.mark.parametrize(
    "isolation",
    ["blazar", pytest.param("tenancy", marks=pytest.mark.nightly("takes 22 seconds more"))],
)
def test_hosts_that_change_projects_stay_closed_to_others(
    isolation: str, deploy: Deploy, lander: Lander, pair: tuple[Project, Project]
) -> None:
    mine, theirs = pair
    climate = deploy(isolation)
    with ThreadPoolExecutor() as at_once:
        list(at_once.map(climate.register, settings.HOSTS))
        assert climate.are_free(settings.HOSTS)
        assert open_to(lander, theirs) == []
        climate.start_manager()
        leases = list(at_once.map(lambda _: climate.reserve(mine.member), settings.HOSTS))
        for lease in leases:
            climate.until(mine.member, lease["id"], "ACTIVE")
        assert open_to(lander, theirs) == []
        list(at_once.map(lambda lease: climate.end_soon(mine.member, lease["id"]), leases))
        climate.until_free(settings.HOSTS)
    assert open_to(lander, mine) == open_to(lander, theirs) == []


def open_to(lander: Lander, project: Project) -> list[str]:
    """Return the hosts that a project's servers can boot on."""
    found = [host for host in settings.HOSTS if lander.can_get_onto(project, host)]
    lander.remove()
    return found
