"""Hostile and slow clients of one project keep no one else out of a running service."""

import socket
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import requests

from tests.support.process import Service, date, eventually, reserve, standalone, write_config
from tests.support.service import host_reservation

# Seconds; without the bounds, /healthz took 14 to 147.
_TIMEOUT = 10
HOSTILE = {"X-Auth-Token": "mallory:hostile"}
STREAM = "/v2/notifications/stream"


def half_open(service: Service) -> socket.socket:
    return send(service, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")


def slow_reader(service: Service) -> socket.socket:
    """Request a large response, and read nothing."""
    return send(service, b"GET /v2/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")


def send(service: Service, data: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", service.port), timeout=_TIMEOUT)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.sendall(data)
    return client


def stream(service: Service) -> requests.Response:
    url = f"{service.url}{STREAM}"
    return requests.get(url, headers=HOSTILE, stream=True, timeout=60)


def close(streams: list[Future[requests.Response]]) -> None:
    for each in streams:
        each.result().close()


def delete(service: Service, lease_id: str) -> None:
    with suppress(requests.RequestException):
        url = f"{service.url}/v1/leases/{lease_id}"
        requests.delete(url, headers=HOSTILE, timeout=60)


def create(service: Service) -> requests.Response:
    """Create a lease of another project."""
    body = {
        "name": "lease",
        "start_date": date(600),
        "end_date": date(660),
        "reservations": [host_reservation()],
    }
    headers = {"X-Auth-Token": "alice:lab"}
    url = f"{service.url}/v1/leases"
    return requests.post(url, json=body, headers=headers, timeout=_TIMEOUT)


def test_others_are_served_while_one_project_takes_what_it_can(tmp_path: Path) -> None:
    conf = write_config(tmp_path / "climate.conf", simulated__delay=30, manager__poll_interval=0.1)
    with standalone(tmp_path, f"--config-file={conf}") as (service, program), ExitStack() as held:
        hostile = Service(service.port, HOSTILE["X-Auth-Token"])
        lease = reserve(hostile)
        eventually(lambda: hostile.lease(lease)["status"] == "STARTING", "it starts")
        pool = held.enter_context(ThreadPoolExecutor(150))
        for open_socket in [half_open] * 110 + [slow_reader] * 100:
            held.enter_context(open_socket(service))
        streams = [pool.submit(stream, service) for _ in range(50)]
        held.callback(close, streams)
        held.callback(program.kill)
        for _ in range(72):
            pool.submit(delete, service, lease)
        eventually(lambda: hostile.lease(lease)["status"] == "DELETING", "mallory deletes it")
        for _ in range(5):
            assert requests.get(f"{service.url}/healthz", timeout=_TIMEOUT).status_code == 200
            assert create(service).status_code == 201
