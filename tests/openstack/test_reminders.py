"""The operator chooses the times of reminders by properties of the hosts; a subscriber adds own."""

import datetime as dt

import pytest

from tests.openstack import settings
from tests.openstack.accounts import Project
from tests.openstack.conftest import Deploy
from tests.support import broker, servers
from tests.support.clients import at
from tests.support.process import eventually
from tests.support.receiver import SECRET, receiving
from tests.support.service import host_reservation

SLOW, FAST = HOSTS = settings.HOSTS[:2]


@pytest.mark.nightly("takes 25 seconds")
@pytest.mark.timeout(300)
def test_slow_hosts_are_announced_earlier(deploy: Deploy, lab: Project, topic: str) -> None:
    climate = deploy(
        "blazar",
        HOSTS,
        notifications__transport_url=servers.RABBITMQ,
        notifications__topics=topic,
        notifications__webhook_networks="127.0.0.0/8",
        notifications__webhook_http="true",
        manager__before_start_leads="4",
        manager__reminder_rules='physical:host ["==", "$$boot", "slow"]: 15, 8',
    )
    climate.start_manager()
    climate.register(SLOW, boot="slow")
    climate.register(FAST, boot="fast")
    now = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=20)
    start = at(now.replace(second=0), 1)
    with (
        receiving() as receiver,
        broker.listening(broker.configure("sqlite://", topic, servers.RABBITMQ), topic) as heard,
    ):
        body = {"url": receiver.url, "secret": SECRET, "before_start_leads": [6]}
        only = {"event_types": ["lease.reminder"]}
        climate.http(lab.member).ok("POST", "/v2/subscriptions", body | only)
        climate.http(lab.member).ok(
            "POST", "/v2/subscriptions", {"url": f"{receiver.url}/other", "secret": SECRET} | only
        )
        for boot in ("slow", "fast"):
            wanted = f'["==", "$boot", "{boot}"]'
            climate.reserve(
                lab.member,
                name=boot,
                start=start,
                reservations=[host_reservation(1, 1, resource_properties=wanted, before_end="")],
            )
        # Two leases are created and start; three reminders, and two for the subscriber. The start
        # is up to 80 s away.
        eventually(lambda: len(heard.payloads) >= 9, "the leases start", 120)
    announced = [
        (payload["name"], round(payload["starts_in"]))
        for name, payload in heard.messages
        if name.endswith("before_start_lease")
    ]
    assert announced == [("slow", 15), ("slow", 8), ("fast", 4)]
    assert sorted(event["data"]["name"] for event in receiver.events) == ["fast", "slow"]
    assert all(0 < event["data"]["starts_in"] <= 6 for event in receiver.events)
    assert {got.path for got in receiver.got} == {"/hook"}
