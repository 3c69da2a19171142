"""Streams of a running climate-standalone."""

import json
from pathlib import Path

import requests

from tests.support.process import date, eventually, standalone, write_config

STREAM = "/v2/notifications/stream"


def test_a_closed_stream_frees_its_place(tmp_path: Path) -> None:
    conf = write_config(tmp_path / "climate.conf", notifications__followers=1)
    with standalone(tmp_path, f"--config-file={conf}") as (service, _program):
        with requests.get(f"{service.url}{STREAM}", stream=True, timeout=30) as stream:
            assert next(stream.iter_lines()) == b"retry: 2000"
            assert service.call("GET", STREAM).status_code == 503
        with eventually(lambda: _stream(service.url), "a place", within=20) as stream:
            assert next(stream.iter_lines()) == b"retry: 2000"


def _stream(url: str) -> requests.Response | None:
    """Return an open stream, or None if all places are taken."""
    response = requests.get(f"{url}{STREAM}", stream=True, timeout=30)
    return response if response.ok else None


def test_streams_leave_threads_for_other_requests_and_end_when_the_server_stops(
    tmp_path: Path,
) -> None:
    conf = write_config(tmp_path / "climate.conf", api__threads=1, notifications__followers=8)
    with standalone(tmp_path, f"--config-file={conf}") as (service, program):
        streams = [requests.get(f"{service.url}{STREAM}", stream=True, timeout=30) for _ in "12"]
        lines = [stream.iter_lines() for stream in streams]
        assert [next(each) for each in lines] == [b"retry: 2000"] * 2
        rejection = service.call("GET", STREAM)
        assert (rejection.status_code, rejection.json()["code"]) == (503, "too_many_followers")
        assert rejection.headers["Retry-After"]
        dates = {"start_date": date(300 * 24 * 60), "end_date": date(301 * 24 * 60)}
        body = {"name": "far", "reservations": [], **dates}
        lease = service.ok("POST", "/v1/leases", body)["lease"]
        for each in lines:
            event = next(line for line in each if line.startswith(b"data: "))
            assert json.loads(event[6:])["lease_id"] == lease["id"]
        assert program.stop() == 0
        for each in lines:  # the answers are complete
            assert [line for line in each if line.startswith(b"data: ")] == []
        assert "Traceback" not in program.errors
