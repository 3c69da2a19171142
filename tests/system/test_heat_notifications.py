"""Notifications on a real RabbitMQ as Heat publishes them: climate follows the change at once."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from climate.config import registry as config_registry
from climate.plugins.stacks.simulated import SimulatedStacks
from climate.plugins.stacks.template import Source
from tests.support import broker
from tests.support.process import Service, eventually, standalone, write_config
from tests.support.proxy import Proxy
from tests.support.stack_leases import PLUGINS, amounts, group, stack, template

# py-amqp leaves the sockets of connections that broke to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

END, FAILED = "orchestration.stack.update.end", "orchestration.stack.update.error"


@pytest.fixture
def pool(topic: str) -> Iterator[str]:
    """Return the name of climate's queue; the exchange has the name of the topic."""
    name = f"{topic}-pool"
    yield name
    broker.remove_queue(name)
    with broker.channel() as opened:
        opened.exchange_delete(topic)


@pytest.fixture
def conf(tmp_path: Path, topic: str, pool: str, broker_proxy: Proxy) -> Path:
    """Return a configuration whose next poll is in an hour."""
    options = {
        "transport_url": broker.through(broker_proxy.port, kombu_reconnect_delay=0.1),
        "topics": topic,
        "exchange": topic,
        "pool": pool,
    }
    return write_config(
        tmp_path / "climate.conf",
        manager__plugins=",".join(PLUGINS),
        manager__sync_interval=3600,
        simulated__journal=tmp_path / "cloud",
        **{f"virtual:stack__notification_{name}": value for name, value in options.items()},
    )


def publish(topic: str, body: bytes, priority: str = "info") -> None:
    with broker.channel() as opened:
        message = opened.prepare_message(
            body.decode("latin-1"), content_type="application/json", content_encoding="utf-8"
        )
        opened.basic_publish(message, exchange=topic, routing_key=f"{topic}.{priority}")


def publish_event(topic: str, event_type: str, payload: Any) -> None:
    """Publish a notification in the form of oslo.messaging's driver messagingv2."""
    priority = "ERROR" if event_type == FAILED else "INFO"
    message = {"event_type": event_type, "payload": payload, "priority": priority}
    text = json.dumps({"publisher_id": "orchestration.a", "message_id": "1", **message})
    body = json.dumps({"oslo.version": "2.0", "oslo.message": text})
    publish(topic, body.encode(), priority.lower())


def start_lease(service: Service) -> str:
    body = {"name": "a stack", "start": "now", "duration": 7200}
    asked = {**body, "reservations": [stack(template(workers=group(2)))]}
    lease_id = str(service.ok("POST", "/v2/leases", asked)["id"])
    service.until_lease_is(lease_id, "ACTIVE")
    return lease_id


def user_updates(conf: Path, largest: int) -> str:
    """Update the only stack as its user, and return its id."""
    made = config_registry.new()
    config_registry.load(made, "test", [f"--config-file={conf}"])
    cloud = SimulatedStacks(made)
    [present] = cloud.stacks()
    cloud.update(None, present, Source(template(workers=group(largest))), ["mine"])  # type: ignore[arg-type]
    return present.id


def until_reserved(service: Service, lease_id: str, amount: int) -> None:
    def is_reserved() -> bool:
        found = service.ok("GET", f"/v2/leases/{lease_id}")
        return amounts(found) == {"servers of flavor m1.large": amount}

    eventually(is_reserved, f"{amount} servers are reserved")


def test_a_notification_is_followed_long_before_the_next_poll(
    tmp_path: Path, topic: str, pool: str, conf: Path, broker_proxy: Proxy
) -> None:
    """Also if the broker is away at the start or later, and after messages that make no sense."""
    broker_proxy.cut()
    with standalone(tmp_path, f"--config-file={conf}") as (service, program):
        lease_id = start_lease(service)
        broker_proxy.mend()
        eventually(lambda: broker.has_queue(pool), "climate listens")
        for body in (
            b"",
            b"{",
            b"[]",
            b"7",
            b'{"oslo.version": "2.0", "oslo.message": "{"}',
            b"\xff",
        ):
            publish(topic, body)
        payload: Any
        for payload in (None, [], {"stack_identity": 7}):
            publish_event(topic, END, payload)
        publish_event(topic, END, {"stack_identity": user_updates(conf, 4)})
        until_reserved(service, lease_id, 4)
        broker_proxy.cut()
        publish_event(topic, FAILED, {"stack_identity": user_updates(conf, 6)})
        broker_proxy.mend()
        until_reserved(service, lease_id, 6)
        assert "warnings" not in service.call("GET", "/readyz").json()
        assert program.stop() == 0


@pytest.mark.parametrize("trouble", ["closed", "silent"])
def test_a_broker_that_is_away_delays_neither_work_nor_stop(
    tmp_path: Path, conf: Path, broker_proxy: Proxy, trouble: str
) -> None:
    if trouble == "closed":
        broker_proxy.cut()
    else:
        broker_proxy.hush()
    with standalone(tmp_path, f"--config-file={conf}") as (service, program):
        start_lease(service)
        assert program.stop() == 0
