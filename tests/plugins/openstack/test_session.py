"""Requests to the cloud's services: every wait is bounded, no change is sent twice."""

import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions import ConnectFailure, ConnectTimeout, EndpointNotFound, Unauthorized

from climate.config import registry as config
from climate.config.registry import Misconfigured
from climate.plugins import fencing
from climate.plugins.fencing import Fenced, FencingToken
from climate.plugins.openstack import session as openstack_session
from tests.support.cases import each_case
from tests.support.keystone import Keystone
from tests.support.process import eventually, free_port, write_config

MakeAdapter = Callable[..., Adapter]


class Compute(socketserver.ThreadingTCPServer):
    """A service that hangs up on the first requests, then answers; a silent one never answers."""

    def __init__(self, *, hangs_up: int = 0, is_silent: bool = False) -> None:
        self.seen: list[str] = []
        self.hangs_up = hangs_up
        self.may_answer = threading.Event()
        if not is_silent:
            self.may_answer.set()
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
        self.server.may_answer.wait()
        if len(self.server.seen) > self.server.hangs_up:
            self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}")


@pytest.fixture
def start() -> Iterator[Callable[..., Compute]]:
    started: list[tuple[Compute, threading.Thread]] = []

    def run(**behaviour: Any) -> Compute:
        server = Compute(**behaviour)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        started.append((server, thread))
        thread.start()
        return server

    yield run
    for server, thread in started:
        server.may_answer.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def keystone() -> Iterator[Keystone]:
    server = Keystone()
    with server.listening():
        yield server


@pytest.fixture
def make_adapter(keystone: Keystone, tmp_path: Path) -> MakeAdapter:
    """Return a maker of adapters to Nova; options as group__option=value, None to unset one."""

    def make(**options: object) -> Adapter:
        user = {f"service_user__{name}": value for name, value in keystone.options.items()}
        values = {name: value for name, value in {**user, **options}.items() if value is not None}
        path = write_config(tmp_path / "climate.conf", **values)
        conf = config.new()
        config.load(conf, "test", [f"--config-file={path}"])
        return openstack_session.adapter(conf, openstack_session.make_session(conf), "nova")

    return make


def test_finds_a_service_in_the_catalog(
    make_adapter: MakeAdapter, keystone: Keystone, start: Callable[..., Compute]
) -> None:
    keystone.endpoints["compute"] = start().url
    assert make_adapter().get("/servers").json() == {}
    assert make_adapter(nova__region_name="R").get("/servers").status_code == 200
    for elsewhere in ({"nova__region_name": "S"}, {"service_user__region_name": "S"}):
        with pytest.raises(EndpointNotFound):
            make_adapter(**elsewhere).get("/servers")


def test_an_endpoint_override_replaces_the_catalog(
    make_adapter: MakeAdapter, start: Callable[..., Compute]
) -> None:
    assert make_adapter(nova__endpoint_override=start().url).get("/servers").json() == {}


def test_the_region_of_a_service_overrides_the_common_one(make_adapter: MakeAdapter) -> None:
    assert make_adapter(service_user__region_name="R").region_name == "R"
    assert make_adapter(service_user__region_name="R", nova__region_name="S").region_name == "S"


def test_retries_a_connection_that_cannot_be_made(
    make_adapter: MakeAdapter, keystone: Keystone, monkeypatch: pytest.MonkeyPatch
) -> None:
    nova = make_adapter(nova__endpoint_override=f"http://127.0.0.1:{free_port()}")
    nova.get_token()
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    with pytest.raises(ConnectFailure):
        nova.post("/servers", json={})
    assert len(pauses) > 1
    assert sum(pauses) > 2


def test_retries_a_read_whose_connection_broke(
    make_adapter: MakeAdapter, start: Callable[..., Compute]
) -> None:
    nova = start(hangs_up=1)
    assert make_adapter(nova__endpoint_override=nova.url).get("/servers").json() == {}
    assert nova.seen == ["GET", "GET"]


@each_case("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_sends_no_change_after_the_claim_expired(
    make_adapter: MakeAdapter, start: Callable[..., Compute], method: str
) -> None:
    compute, now = start(), 0.0
    nova, fencing_token = (
        make_adapter(nova__endpoint_override=compute.url),
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


@each_case("method", ["POST", "PUT", "DELETE"])
def test_does_not_repeat_a_change_that_may_have_arrived(
    make_adapter: MakeAdapter, start: Callable[..., Compute], method: str
) -> None:
    nova = start(hangs_up=1)
    with pytest.raises(ConnectFailure):
        make_adapter(nova__endpoint_override=nova.url).request("/servers", method)
    assert nova.seen == [method]


def test_a_request_times_out_and_is_not_sent_again(
    make_adapter: MakeAdapter, start: Callable[..., Compute]
) -> None:
    server = start(is_silent=True)
    nova = make_adapter(nova__endpoint_override=server.url)
    nova.get_token()  # not within the short timeout
    nova.session.timeout = 0.1
    with pytest.raises(ConnectTimeout):
        nova.post("/servers", json={})
    eventually(lambda: server.seen, "the request was read")
    assert server.seen == ["POST"]


def test_the_timeout_is_configured_and_a_minute_by_default(make_adapter: MakeAdapter) -> None:
    assert make_adapter().session.timeout == 60
    assert make_adapter(service_user__timeout=0.1).session.timeout == 0.1


def test_reports_a_wrong_password(make_adapter: MakeAdapter, keystone: Keystone) -> None:
    keystone.knows_the_service = False
    with pytest.raises(Unauthorized):
        make_adapter().get("/servers")


def test_the_user_may_be_configured_in_another_section(
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
    nova = openstack_session.adapter(conf, openstack_session.make_session(conf), "nova")
    assert nova.get("/servers").json() == {}


@each_case(
    "options, reason",
    [
        ({"service_user__auth_type": None}, r"\[service_user\] auth_type is not set"),
        ({"service_user__auth_type": "nosuch"}, "nosuch"),
        ({"service_user__auth_url": None}, "auth_url"),
    ],
)
def test_reports_misconfiguration_before_the_first_request(
    make_adapter: MakeAdapter, options: dict[str, str | None], reason: str
) -> None:
    with pytest.raises(Misconfigured, match=reason):
        make_adapter(**options)


def test_rejects_an_unknown_interface(make_adapter: MakeAdapter) -> None:
    with pytest.raises(Misconfigured, match="secret"):
        make_adapter(nova__valid_interfaces="internal,secret")
