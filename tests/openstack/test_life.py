"""The life of a host lease on a real cloud, with real clients, in both modes of isolation."""

import datetime as dt
from typing import Any

import pytest
from blazarclient.exception import BlazarClientException

from tests.openstack import settings, traces
from tests.openstack.accounts import Project
from tests.openstack.conftest import Deploy
from tests.openstack.deployment import Deployment
from tests.openstack.landing import Lander
from tests.support import broker, servers
from tests.support.clients import at
from tests.support.process import eventually

HOSTS = settings.HOSTS[:2]
EVENT_TYPES = [
    "lease.create",
    "lease.event.before_start_lease",
    "lease.event.start_lease",
    "lease.update",
    "lease.event.update_lease",
    "lease.event.end_lease",
    "lease.delete",
]

modes = pytest.mark.parametrize(
    "isolation",
    ["blazar", pytest.param("tenancy", marks=pytest.mark.nightly("takes 70 seconds more"))],
)


def soon() -> str:
    """Return a full minute in the near future, in the format of requests."""
    now = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=30)
    return at(now.replace(second=0), 1)


def check_aggregate(climate: Deployment, lease: dict[str, Any], hosts: list[str]) -> None:
    """Check the metadata of the aggregate that the scheduler's filter reads."""
    id_, owner = lease["reservations"][0]["id"], lease["project_id"]
    of_isolation: dict[str, dict[str, Any]] = {
        "blazar": {"zone": f"blazar_{id_}", "metadata": {"blazar:owner": owner}},
        "tenancy": {"zone": None, "metadata": {"filter_tenant_id": owner}},
    }
    expected = of_isolation[climate.isolation]
    expected["metadata"][traces.MARK] = id_
    assert traces.aggregates(climate.cloud)[id_] == {"hosts": hosts, **expected}


def check_use(
    climate: Deployment, lander: Lander, lab: Project, lease: dict[str, Any], host: str
) -> None:
    """Check that the owner can boot on the reserved host."""
    if climate.isolation == "blazar":
        reservation = lease["reservations"][0]["id"]
        assert lander.boot(lab.member, reservation) == host
        assert lander.boot(lab.member) not in HOSTS
    else:
        eligible = lander.eligible(lab.member)
        assert eligible & set(HOSTS) == {host}
        assert lander.can_get_onto(lab, host)


def add_host(climate: Deployment, lab: Project, lease: dict[str, Any], host: str) -> None:
    """Let the running lease gain this host, and check the aggregate."""
    id_ = lease["reservations"][0]["id"]
    change = {"reservations": [{"id": id_, "add_hosts": [host]}]}
    climate.http(lab.member).ok("PATCH", f"/v2/leases/{lease['id']}", change)
    eventually(lambda: traces.holders(climate.cloud, host) == [id_], "the host joins the pool")
    check_aggregate(climate, lease, sorted(HOSTS))


@pytest.mark.timeout(300)
@modes
def test_a_lease_is_announced_started_grown_used_only_by_its_owner_and_ended(
    isolation: str,
    deploy: Deploy,
    lander: Lander,
    lab: Project,
    others: Project,
    topic: str,
) -> None:
    climate = deploy(
        isolation,
        notifications__transport_url=servers.RABBITMQ,
        notifications__topics=topic,
        manager__before_start_leads=10,
    )
    climate.start_manager()
    climate.register(*HOSTS)
    assert climate.are_free(HOSTS)
    conf = broker.configure("sqlite://", topic, servers.RABBITMQ)
    with broker.listening(conf, topic) as heard:
        lease = climate.reserve(lab.member, start=soon())
        for project in (lab, others):
            assert not lander.can_get_onto_any(project, HOSTS)
        # The start is up to 90 s away.
        eventually(lambda: len(heard.payloads) >= 2, "the start is announced", 120)
        assert climate.by(lab.reader).lease.get(lease["id"])["status"] == "PENDING"
        climate.until(lab.reader, lease["id"], "ACTIVE")
        [host] = climate.hosts_of(lease["id"])
        check_aggregate(climate, lease, [host])
        check_use(climate, lander, lab, lease, host)
        add_host(climate, lab, lease, next(name for name in HOSTS if name != host))
        reservation = lease["reservations"][0]["id"]
        for hint in (None, reservation):
            assert not lander.can_get_onto_any(others, HOSTS, hint)
        assert lander.boot(others.member) not in HOSTS
        assert traces.servers_on(climate.cloud, [host])
        climate.by(lab.member).lease.delete(lease["id"])
        heard.wait_for(len(EVENT_TYPES))
    assert heard.types(lease["id"]) == EVENT_TYPES
    [announced] = [one for name, one in heard.messages if name.endswith("before_start_lease")]
    assert 0 < announced["starts_in"] <= 10
    assert traces.servers_on(climate.cloud, HOSTS) == []
    assert reservation not in traces.aggregate_names(climate.cloud)
    assert climate.are_free(HOSTS)
    with pytest.raises(BlazarClientException, match="not found"):
        climate.by(lab.member).lease.get(lease["id"])
