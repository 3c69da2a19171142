"""An agent pushes stats of hosts with the Python client, and users reserve by them."""

from climate import client as climate
from tests.openstack import settings
from tests.openstack.accounts import Account, Project
from tests.openstack.conftest import Deploy
from tests.openstack.landing import Lander
from tests.support.service import host_reservation

BUSY, IDLE = HOSTS = settings.HOSTS[:2]


def test_users_reserve_by_the_stats_that_an_agent_pushes(
    deploy: Deploy, lander: Lander, administrator: Account, lab: Project
) -> None:
    service = deploy("blazar", HOSTS, resources__property_types="firmware = version, load = number")
    service.start_manager()
    service.register(*HOSTS, firmware="1.9", load="0")
    agent = climate.connect(endpoint=service.url, session=administrator.cloud.session)
    stats = [(BUSY, "1.10", 9.5), (IDLE, "1.10", 1.5)]
    results = agent.resources.update_stats(
        {"resource": name, "generation": 1, "stats": {"firmware": firmware, "load": load}}
        for name, firmware, load in stats
    )
    assert [each.result for each in results] == ["applied", "applied"]
    # As text, 1.10 would be lower than 1.9.
    wanted = '["and", [">", "$firmware", "1.9"], ["<", "$load", "5"]]'
    reservation = host_reservation(1, 1, resource_properties=wanted, before_end="")
    lease = service.start_lease(lab.member, reservation)
    assert service.hosts_of(lease["id"]) == [IDLE]
    assert lander.boot(lab.member, lease["reservations"][0]["id"]) == IDLE
    service.end(lab.member, lease["id"])
