"""The operator chooses the times of reminders by the properties of the reserved hosts."""

import datetime as dt

import pytest

from tests.openstack import settings
from tests.openstack.accounts import Project
from tests.openstack.conftest import Deploy
from tests.support import broker, servers
from tests.support.clients import at
from tests.support.process import eventually
from tests.support.service import host_reservation

SLOW, FAST = HOSTS = settings.HOSTS[:2]


@pytest.mark.timeout(300)
def test_slow_hosts_are_announced_earlier(deploy: Deploy, lab: Project, topic: str) -> None:
    climate = deploy(
        "blazar",
        HOSTS,
        notifications__transport_url=servers.RABBITMQ,
        notifications__topics=topic,
        manager__before_start_leads="4",
        manager__reminder_rules='physical:host ["==", "$$boot", "slow"]: 15, 8',
    )
    climate.start_manager()
    climate.register(SLOW, boot="slow")
    climate.register(FAST, boot="fast")
    now = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=20)
    start = at(now.replace(second=0), 1)
    with broker.listening(broker.configure("sqlite://", topic, servers.RABBITMQ), topic) as heard:
        for boot in ("slow", "fast"):
            wanted = f'["==", "$boot", "{boot}"]'
            climate.reserve(
                lab.member,
                name=boot,
                start=start,
                reservations=[host_reservation(1, 1, resource_properties=wanted, before_end="")],
            )
        # Two leases are created and start; three reminders. The start is up to 80 s away.
        eventually(lambda: len(heard.payloads) >= 7, "the leases start", 120)
    announced = [
        (payload["name"], round(payload["starts_in"]))
        for name, payload in heard.messages
        if name.endswith("before_start_lease")
    ]
    assert announced == [("slow", 15), ("slow", 8), ("fast", 4)]
