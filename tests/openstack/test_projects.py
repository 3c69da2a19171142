"""Two projects with leases on one cloud: neither sees, changes or lands on the other's."""

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
    """Return two projects."""
    return project("one"), project("other")


def refused(ask: Callable[[], Any]) -> int:
    """Return the status with which a request of Blazar's client is refused."""
    with pytest.raises(BlazarClientException) as refusal:
        ask()
    return int(refusal.value.kwargs["code"])


def answers(climate: Deployment, lease_id: str, stranger: Account) -> list[int]:
    """Return how requests of all kinds about a lease are refused."""
    leases, http = climate.by(stranger).lease, climate.http(stranger)
    return [
        refused(lambda: leases.get(lease_id)),
        refused(lambda: leases.update(lease_id, name="mine")),
        refused(lambda: leases.update(lease_id, prolong_for="1h")),
        refused(lambda: leases.delete(lease_id)),
        http.call("PUT", f"/v1/leases/{lease_id}", {"end_date": "now"}).status_code,
    ]


def check_hidden(climate: Deployment, lease_id: str, strangers: Project) -> None:
    """See that to another project there is no such lease."""
    assert answers(climate, lease_id, strangers.member) == 5 * [404]
    # Readers may change nothing at all; whether there is such a lease, they do not learn.
    for any_id in (lease_id, "no-such-lease"):
        assert answers(climate, any_id, strangers.reader) == [404, 403, 404, 403, 403]
    for stranger in (strangers.reader, strangers.member):
        assert lease_id not in [one["id"] for one in climate.by(stranger).lease.list()]
        assert climate.http(stranger).told(lease_id) == []


@pytest.mark.parametrize("isolation", ["blazar", "tenancy"])
def test_projects_neither_see_nor_change_nor_land_on_the_others_leases(
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
        assert [one["id"] for one in climate.by(mine.reader).lease.list()] == [lease["id"]]
        check_hidden(climate, lease["id"], theirs)
        assert climate.by(mine.reader).lease.get(lease["id"]) == before
        [host], hint = climate.hosts_of(lease["id"]), climate.hint(lease)
        assert lander.can_get_onto(mine, host, hint)
        assert not lander.can_get_onto(theirs, host, hint)
        assert not lander.can_get_onto(theirs, host)


@pytest.mark.parametrize("isolation", ["blazar", "tenancy"])
def test_the_end_of_one_projects_lease_is_none_of_the_others(
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


@pytest.mark.parametrize("isolation", ["blazar", "tenancy"])
def test_hosts_that_change_hands_at_the_same_time_are_open_to_nobody_else(
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
    """Return those of our hosts that a project's servers can be on."""
    found = [host for host in settings.HOSTS if lander.can_get_onto(project, host)]
    lander.remove()
    return found
