"""The way to the cloud's services: nothing waits for ever, nothing that changes is sent twice."""

import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions import ConnectFailure, ConnectTimeout, EndpointNotFound, Unauthorized
from oslo_config import cfg

from climate import config
from climate.config import Misconfigured
from climate.plugins import fencing
from climate.plugins.fencing import Fenced, FencingToken
from climate.plugins.openstack import session
from tests.keystone import Keystone
from tests.process import free_port, write_config

Way = Callable[..., Adapter]


class Compute(socketserver.ThreadingTCPServer):
    """A service that hangs up on the first requests, or keeps them waiting, then answers."""

    def __init__(self, *, hangs_up: int = 0, delay: float = 0) -> None:
        self.seen: list[str] = []
        self.hangs_up = hangs_up
        self.delay = delay
        super().__init__(("127.0.0.1", 0), _Conversation)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Conversation(socketserver.StreamRequestHandler):
    server: Compute

    def handle(self) -> None:
        head = []
        while line := self.rfile.readline().strip().decode():
            head.append(line)
        self.server.seen.append(head[0].split()[0])
        time.sleep(self.server.delay)
        if len(self.server.seen) > self.server.hangs_up:
            self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}")


@pytest.fixture
def start() -> Iterator[Callable[..., Compute]]:
    """Return what starts such a service."""
    started: list[tuple[Compute, threading.Thread]] = []

    def run(**behaviour: float) -> Compute:
        made = Compute(**behaviour)
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        started.append((made, thread))
        thread.start()
        return made

    yield run
    for made, thread in started:
        made.shutdown()
        thread.join()
        made.server_close()


@pytest.fixture
def keystone() -> Iterator[Keystone]:
    """Return a Keystone that listens."""
    made = Keystone()
    with made.listening():
        yield made


@pytest.fixture
def way(keystone: Keystone, tmp_path: Path) -> Way:
    """Return what makes the way to Nova, with options as group__option=value, None for none."""

    def make(**options: object) -> Adapter:
        user = {f"service_user__{name}": value for name, value in keystone.options.items()}
        given = {name: value for name, value in {**user, **options}.items() if value is not None}
        path = write_config(tmp_path / "climate.conf", **given)
        conf = config.new()
        config.load(conf, "test", [f"--config-file={path}"])
        return session.adapter(conf, session.make_session(conf), "nova")

    return make


def test_a_service_is_found_in_the_catalog(
    way: Way, keystone: Keystone, start: Callable[..., Compute]
) -> None:
    keystone.endpoints["compute"] = start().url
    assert way().get("/servers").json() == {}
    assert way(nova__region_name="R").get("/servers").status_code == 200
    for elsewhere in ({"nova__region_name": "S"}, {"service_user__region_name": "S"}):
        with pytest.raises(EndpointNotFound):
            way(**elsewhere).get("/servers")


def test_a_service_may_be_named_instead(way: Way, start: Callable[..., Compute]) -> None:
    assert way(nova__endpoint_override=start().url).get("/servers").json() == {}


def test_the_region_of_a_service_counts_more_than_the_common_one(way: Way) -> None:
    assert way(service_user__region_name="R").region_name == "R"
    assert way(service_user__region_name="R", nova__region_name="S").region_name == "S"


def test_a_connection_that_cannot_be_made_is_tried_again(way: Way) -> None:
    nova = way(nova__endpoint_override=f"http://127.0.0.1:{free_port()}")
    began = time.monotonic()
    with pytest.raises(ConnectFailure):
        nova.post("/servers", json={})
    assert time.monotonic() - began > 2


def test_what_reads_is_asked_once_more(way: Way, start: Callable[..., Compute]) -> None:
    nova = start(hangs_up=1)
    assert way(nova__endpoint_override=nova.url).get("/servers").json() == {}
    assert nova.seen == ["GET", "GET"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_nothing_is_changed_for_a_claim_that_has_run_out(
    way: Way, start: Callable[..., Compute], method: str
) -> None:
    compute, now = start(), 0.0
    nova, fencing_token = (
        way(nova__endpoint_override=compute.url),
        FencingToken(lambda: now, until=10.0),
    )
    with fencing.fenced(fencing_token):
        assert nova.request("/servers", method).ok
        now = 10.0
        with pytest.raises(Fenced):
            nova.request("/servers", method)
        assert nova.get("/servers").ok
        assert fencing_token.blocked_a_change
        fencing_token.extend(20.0)
        assert nova.request("/servers", method).ok
        fencing_token.revoke()
        fencing_token.extend(30.0)
        with pytest.raises(Fenced):
            nova.request("/servers", method)
    assert nova.request("/servers", method).ok
    assert compute.seen == [method, "GET", method, method]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_what_may_have_arrived_is_not_sent_again(
    way: Way, start: Callable[..., Compute], method: str
) -> None:
    nova = start(hangs_up=1)
    with pytest.raises(ConnectFailure):
        way(nova__endpoint_override=nova.url).request("/servers", method)
    assert nova.seen == [method]


def test_nothing_waits_for_ever(way: Way, start: Callable[..., Compute]) -> None:
    nova = start(delay=0.5)
    with pytest.raises(ConnectTimeout):
        way(nova__endpoint_override=nova.url, service_user__timeout=0.1).post("/servers", json={})
    assert nova.seen == ["POST"]


def test_a_minute_is_the_longest_wait_by_default(way: Way) -> None:
    assert way().session.timeout == 60


def test_a_wrong_password_is_said(way: Way, keystone: Keystone) -> None:
    keystone.knows_the_service = False
    with pytest.raises(Unauthorized):
        way().get("/servers")


def test_the_user_may_be_that_of_another_section(
    keystone: Keystone, tmp_path: Path, start: Callable[..., Compute]
) -> None:
    user = {f"keystone_authtoken__{name}": value for name, value in keystone.options.items()}
    path = write_config(
        tmp_path / "climate.conf",
        service_user__auth_section="keystone_authtoken",
        nova__endpoint_override=start().url,
        **user,
    )
    conf = config.new()
    config.load(conf, "test", [f"--config-file={path}"])
    nova = session.adapter(conf, session.make_session(conf), "nova")
    assert nova.get("/servers").json() == {}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"service_user__auth_type": None}, r"\[service_user\] auth_type is not set"),
        ({"service_user__auth_type": "nosuch"}, "nosuch"),
        ({"service_user__auth_url": None}, "auth_url"),
    ],
)
def test_what_cannot_be_is_said_before_the_first_request(
    way: Way, options: dict[str, str | None], reason: str
) -> None:
    with pytest.raises(Misconfigured, match=reason):
        way(**options)


def test_an_interface_that_does_not_exist_is_refused(way: Way) -> None:
    with pytest.raises(cfg.ConfigFileValueError, match="secret"):
        way(nova__valid_interfaces="internal,secret")
