"""The broker in tests: a proxy that can cut its connections, a publishing service, a listener."""

import contextlib
import datetime as dt
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import kombu
from oslo_config.cfg import ConfigOpts
from sqlalchemy.engine import make_url

from climate.cmd import bootstrap
from climate.config import registry as config_registry
from climate.core.lease.model import Lease
from climate.core.notifications.message import Notification, NotificationFilter
from climate.manager.admission.requirements import ReservationRequest
from climate.manager.leases.create import LeaseRequest, Owner, create_lease
from climate.manager.notifications import log as notifications
from climate.manager.process.runtime import Runtime
from climate.manager.resources import registry as resources
from climate.notifications import listen
from climate.notifications.emit import MessagingEmitter, open_transport
from tests.support import servers
from tests.support.process import eventually
from tests.support.proxy import Proxy

_AMQP = servers.RABBITMQ.replace("rabbit://", "amqp://")


def proxy() -> Proxy:
    url = make_url(servers.RABBITMQ)
    return Proxy(url.host or "127.0.0.1", url.port or 5672)


def through(port: int, **options: object) -> str:
    """Return the broker's URL through a port of the loopback, with options of the driver."""
    url = make_url(servers.RABBITMQ).set(host="127.0.0.1", port=port)
    text = url.render_as_string(hide_password=False)
    return "?".join([text, *(f"{name}={value}" for name, value in options.items())])


@contextmanager
def channel() -> Iterator[Any]:
    """Open a channel to the broker, without climate and oslo.messaging."""
    with kombu.Connection(_AMQP) as connection, connection.channel() as opened:
        yield opened


def depth(topic: str) -> int:
    """Return the number of messages in the queue of a topic."""
    return _count(f"{topic}.info") or 0


def has_queue(name: str) -> bool:
    return _count(name) is not None


def _count(queue: str) -> int | None:
    with channel() as opened:
        try:
            return int(opened.queue_declare(queue, passive=True).message_count)
        except opened.connection.channel_errors:
            return None


def remove_queue(name: str) -> None:
    with channel() as opened:
        opened.queue_delete(name)


def take(topic: str) -> list[dict[str, Any]]:
    """Remove all messages from the queue of a topic; return envelope and content of each."""
    messages: list[dict[str, Any]] = []
    with channel() as opened, contextlib.suppress(*opened.connection.channel_errors):
        while message := opened.basic_get(f"{topic}.info", no_ack=True):
            envelope = json.loads(message.body)
            messages.append({**envelope, **json.loads(envelope["oslo.message"])})
    return messages


@dataclass
class Received:
    """The messages that a listener received, in order of arrival."""

    messages: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def note(self, event_type: str, payload: dict[str, Any]) -> None:
        self.messages.append((event_type, payload))

    @property
    def payloads(self) -> list[dict[str, Any]]:
        """The payloads without repetitions, which have the id of the first message."""
        by_id = {payload["message_id"]: payload for _, payload in reversed(self.messages)}
        return list(by_id.values())[::-1]

    @property
    def seqs(self) -> list[int]:
        return [payload["seq"] for payload in self.payloads]

    def types(self, lease_id: str) -> list[str]:
        return [name for name, payload in self.messages if payload["lease_id"] == lease_id]

    def wait_for(self, count: int) -> None:
        """Wait until ``count`` different messages arrived."""
        eventually(lambda: len(self.payloads) >= count, f"{count} messages at the listener")


def notification(number: int) -> Notification:
    """Return a notification with arbitrary content."""
    return Notification(
        seq=number,
        message_id=f"id-{number}",
        event_type="lease.create",
        lease_id="lease",
        project_id="lab",
        payload={},
        created_at=dt.datetime(2030, 1, 15, 12, 0, 0, 250_000, tzinfo=dt.UTC),
    )


def publish(topic: str, count: int) -> None:
    conf = configure("sqlite://", topic, servers.RABBITMQ)
    emitter = MessagingEmitter(conf, servers.RABBITMQ)
    for number in range(1, count + 1):
        emitter.publish(notification(number), {"seq": number, "message_id": f"id-{number}"})
    emitter.close()


def configure(database_url: str, topic: str, transport_url: str, **options: object) -> ConfigOpts:
    """Return the configuration of a publishing service; options as group__option=value."""
    conf = config_registry.new()
    config_registry.load(conf, "test", [])
    given: Mapping[str, object] = {
        "database__connection": database_url,
        "notifications__transport_url": transport_url,
        "notifications__topics": [topic],
        "manager__before_start_leads": [1],
        "manager__poll_interval": 0.2,
        "manager__shutdown_timeout": 3.0,
        **options,
    }
    for name, value in given.items():
        group, _, option = name.partition("__")
        conf.set_override(option, value, group=group)
    return conf


@contextmanager
def prepared(conf: ConfigOpts) -> Iterator[Runtime]:
    """Open a runtime with one registered host."""
    with bootstrap.open_runtime(conf) as runtime:
        if not resources.find_all(runtime, "physical:host"):
            resources.register(runtime, "physical:host", "sim-1")
        yield runtime


@contextmanager
def publishing(conf: ConfigOpts) -> Iterator[Runtime]:
    """Run a whole manager; at the end of the block, stop it, and fail if it does not stop."""
    with prepared(conf) as runtime:
        manager = bootstrap.make_manager(conf, runtime)
        manager.start()
        try:
            yield runtime
        finally:
            stopping = threading.Thread(target=manager.stop, daemon=True)
            stopping.start()
            eventually(lambda: not stopping.is_alive(), "the manager stopped")


@contextmanager
def listening(conf: ConfigOpts, topic: str) -> Iterator[Received]:
    """Listen to a topic with climate's own listener."""
    heard = Received()
    with listen.from_broker(open_transport(conf, servers.RABBITMQ), [topic], heard.note):
        yield heard


def numbered(runtime: Runtime) -> int:
    """Return how many notifications can be read over HTTP."""
    found = notifications.find_after(runtime, NotificationFilter(), 0, 1000)
    return len(found.notifications)


def reserve(
    runtime: Runtime,
    start: float,
    length: float,
    *,
    before_end: float | None = None,
    leads: tuple[float, ...] = (),
) -> Lease:
    """Create a lease of one host; times are seconds, ``leads`` are before its start."""
    begin = runtime.clock.now() + dt.timedelta(seconds=start)
    end = begin + dt.timedelta(seconds=length)
    params = {
        "min": 1,
        "max": 1,
        "hypervisor_properties": "",
        "resource_properties": "",
        "before_end": "default",
    }
    request = LeaseRequest(
        name="lease",
        start=begin,
        end=end,
        before_end=None if before_end is None else end - dt.timedelta(seconds=before_end),
        reservations=(ReservationRequest(resource_type="physical:host", params=params),),
        user_events=tuple(
            ("before_start_lease", begin - dt.timedelta(seconds=lead)) for lead in leads
        ),
    )
    return create_lease(runtime, Owner(user_id="alice", project_id="lab"), request)
