"""Notifications on a real RabbitMQ: complete and in order, whatever happens to the broker."""

import threading
from pathlib import Path

import pytest

from climate.db.notifications import outbox
from climate.manager.leases.delete import delete_lease
from climate.manager.process.runtime import Runtime
from climate.notifications.emit import MessagingEmitter
from tests.support import broker, servers
from tests.support.broker import (
    configure,
    listening,
    notification,
    numbered,
    prepared,
    publishing,
    reserve,
)
from tests.support.process import eventually, running, write_config
from tests.support.proxy import Proxy

NIGHTLY = pytest.mark.nightly(reason="waits for time-outs of the broker")

# py-amqp leaves the sockets of connections that broke to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

LIFE = [
    "lease.create",
    "lease.event.before_start_lease",
    "lease.event.before_start_lease",
    "lease.event.start_lease",
    "lease.event.before_end_lease",
    "lease.event.end_lease",
]
HOURS = 3600.0


def create_and_delete(runtime: Runtime, count: int) -> list[str]:
    """Create leases and delete them; return their ids."""
    made = [reserve(runtime, HOURS * (2 + number), 60) for number in range(count)]
    for lease in made:
        delete_lease(runtime, lease.id)
    return [lease.id for lease in made]


# A broker that is there.


@pytest.mark.parametrize(
    "backend", ["sqlite", pytest.param("postgresql", marks=NIGHTLY)], indirect=True
)
def test_all_events_of_a_lease_are_published_in_order(database_url: str, topic: str) -> None:
    conf = configure(database_url, topic, servers.RABBITMQ)
    with listening(conf, topic) as heard, publishing(conf) as runtime:
        lease = reserve(runtime, 4, 3, before_end=1.5, leads=(3, 1.5))
        heard.wait_for(len(LIFE))
    assert heard.types(lease.id) == LIFE
    assert heard.seqs == [1, 2, 3, 4, 5, 6]
    assert len(heard.messages) == len(LIFE)
    first, second = (one for name, one in heard.messages if name.endswith("before_start_lease"))
    assert 3 >= first["starts_in"] > second["starts_in"] > 0
    names = [[host["name"] for host in item.get("hosts", [])] for item in heard.payloads]
    assert names == [[]] + 5 * [["sim-1"]]
    states = [item["status"] for item in heard.payloads]
    assert states == ["PENDING", "PENDING", "PENDING", "ACTIVE", "ACTIVE", "TERMINATED"]


def test_each_topic_gets_the_envelope_of_oslo_messaging(sqlite_url: str, topic: str) -> None:
    conf = configure(
        sqlite_url, topic, servers.RABBITMQ, notifications__publisher_id="blazar.lease"
    )
    conf.set_override("topics", [topic, f"{topic}-too"], group="notifications")
    emitter = MessagingEmitter(conf, servers.RABBITMQ)
    emitter.publish(notification(1), {"lease_id": "lease", "seq": 1})
    emitter.close()
    [message] = broker.take(topic)
    assert {name: value for name, value in message.items() if not name.startswith("_")} == {
        "oslo.version": "2.0",
        "oslo.message": message["oslo.message"],
        "message_id": "id-1",
        "publisher_id": "blazar.lease",
        "event_type": "lease.create",
        "priority": "INFO",
        "payload": {"lease_id": "lease", "seq": 1},
        "timestamp": "2030-01-15 12:00:00.250000",
    }
    assert message["_context_project_id"] == "lab"
    assert [item["message_id"] for item in broker.take(f"{topic}-too")] == ["id-1"]
    broker.remove_queue(f"{topic}-too.info")
    assert conf.oslo_messaging_rabbit.heartbeat_timeout_threshold == 10, "bounded by default"


# A broker that is away.


def test_notifications_are_published_when_the_broker_is_back(
    sqlite_url: str, topic: str, broker_proxy: Proxy
) -> None:
    broker_proxy.cut()
    conf = configure(sqlite_url, topic, broker.through(broker_proxy.port))
    with listening(conf, topic) as heard, publishing(conf) as runtime:
        made = create_and_delete(runtime, 4)
        eventually(lambda: numbered(runtime) == 8, "all can be read meanwhile")
        assert heard.messages == []
        broker_proxy.mend()
        heard.wait_for(8)
    assert heard.seqs == list(range(1, 9))
    for lease_id in made:
        assert heard.types(lease_id) == ["lease.create", "lease.delete"]


def test_a_broken_connection_loses_nothing_and_keeps_the_order(
    sqlite_url: str, topic: str, broker_proxy: Proxy
) -> None:
    conf = configure(sqlite_url, topic, broker.through(broker_proxy.port))
    with listening(conf, topic) as heard, publishing(conf) as runtime:
        for round_ in range(1, 4):
            create_and_delete(runtime, 3)
            broker_proxy.cut()
            create_and_delete(runtime, 3)
            broker_proxy.mend()
            heard.wait_for(round_ * 12)
    assert heard.seqs == list(range(1, 37))


def test_a_message_counts_as_published_after_the_brokers_confirmation(
    sqlite_url: str, topic: str, broker_proxy: Proxy
) -> None:
    url = broker.through(broker_proxy.port)
    emitter = MessagingEmitter(configure(sqlite_url, topic, url), url)
    emitter.publish(notification(1), {})
    broker_proxy.hush()
    publishing_ = threading.Thread(target=emitter.publish, args=(notification(2), {}), daemon=True)
    publishing_.start()
    eventually(lambda: broker.depth(topic) == 2, "the message is at the broker")
    publishing_.join(0.5)
    assert publishing_.is_alive()
    broker_proxy.mend()
    publishing_.join()
    emitter.close()


def test_an_unconfirmed_message_is_sent_again_with_the_same_id(
    sqlite_url: str, topic: str, broker_proxy: Proxy
) -> None:
    conf = configure(sqlite_url, topic, broker.through(broker_proxy.port))
    with publishing(conf) as runtime:
        first = reserve(runtime, HOURS, 60)
        eventually(lambda: broker.depth(topic) == 1, "the connection is there")
        broker_proxy.hush()
        delete_lease(runtime, first.id)
        eventually(lambda: broker.depth(topic) == 2, "the message is at the broker")
        broker_proxy.cut()
        broker_proxy.mend()
        eventually(lambda: broker.depth(topic) == 3, "it is sent again")
    created, deleted, again = broker.take(topic)
    assert deleted["message_id"] == again["message_id"] != created["message_id"]
    assert deleted["payload"] == again["payload"]


# A broker that is away must not hold us up.


@NIGHTLY
def test_connecting_to_a_silent_broker_times_out(
    sqlite_url: str, topic: str, broker_proxy: Proxy
) -> None:
    broker_proxy.hush()
    url = broker.through(broker_proxy.port)
    emitter = MessagingEmitter(configure(sqlite_url, topic, url), url)
    with pytest.raises(Exception, match="timed out"):
        emitter.publish(notification(1), {})
    emitter.close()


@NIGHTLY
def test_publishing_to_a_silent_broker_times_out(
    sqlite_url: str, topic: str, broker_proxy: Proxy
) -> None:
    url = broker.through(broker_proxy.port, heartbeat_timeout_threshold=2)
    emitter = MessagingEmitter(configure(sqlite_url, topic, url), url)
    emitter.publish(notification(1), {})
    broker_proxy.hush()
    with pytest.raises(Exception, match="timed out"):
        emitter.publish(notification(2), {})
    broker_proxy.cut()
    emitter.close()


@pytest.mark.parametrize("trouble", ["closed", "silent", "falls silent"])
def test_a_manager_stops_while_the_broker_is_away(
    sqlite_url: str, topic: str, broker_proxy: Proxy, trouble: str
) -> None:
    url = broker.through(
        broker_proxy.port, heartbeat_timeout_threshold=60
    )  # it may be that patient
    conf = configure(sqlite_url, topic, url, manager__shutdown_timeout=0.5)
    if trouble == "closed":
        broker_proxy.cut()
    if trouble == "silent":
        broker_proxy.hush()
    with publishing(conf) as runtime:  # waits for the end of the manager
        first = reserve(runtime, HOURS, 60)
        if trouble == "falls silent":
            eventually(lambda: broker.depth(topic) == 1, "the connection is there")
            broker_proxy.hush()
        delete_lease(runtime, first.id)
        eventually(lambda: numbered(runtime) == 2, "the relay is at work")
    broker_proxy.cut()
    with publishing(configure(sqlite_url, topic, servers.RABBITMQ)):
        eventually(lambda: broker.depth(topic) >= 2, "the next manager publishes what is left")
    told = list(dict.fromkeys(item["event_type"] for item in broker.take(topic)))
    assert told == ["lease.create", "lease.delete"]


def unpublished(runtime: Runtime) -> int:
    """Return how many notifications are not published."""
    with runtime.database.read() as session:
        return outbox.lag(session, 10)[0]


def test_a_manager_stops_while_an_idle_connection_is_silent(
    sqlite_url: str, topic: str, broker_proxy: Proxy
) -> None:
    url = broker.through(broker_proxy.port, heartbeat_timeout_threshold=60)
    conf = configure(sqlite_url, topic, url, manager__shutdown_timeout=0.5)
    with publishing(conf) as runtime:  # waits for the end of the manager
        reserve(runtime, HOURS, 60)
        eventually(lambda: unpublished(runtime) == 0, "the relay has nothing to do")
        broker_proxy.hush()
    broker_proxy.cut()


@NIGHTLY
def test_a_manager_process_stops_while_the_broker_is_silent(
    sqlite_url: str, topic: str, broker_proxy: Proxy, tmp_path: Path
) -> None:
    broker_proxy.hush()
    conf = write_config(
        tmp_path / "climate.conf",
        database__connection=sqlite_url,
        notifications__transport_url=broker.through(broker_proxy.port),
        notifications__topics=topic,
        manager__shutdown_timeout=1,
    )
    with prepared(configure(sqlite_url, topic, servers.RABBITMQ)) as runtime:
        reserve(runtime, HOURS, 60)
    with running(tmp_path, "climate-manager", f"--config-file={conf}") as program:
        program.says("cannot publish notifications")
        assert program.stop() == 0
