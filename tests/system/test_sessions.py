"""Sessions of browsers at several API processes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from cryptography.fernet import Fernet

from climate.cmd import main
from tests.support.browser import CSRF, SESSION
from tests.support.process import Service, free_port, running, write_config

Sites = list[Service]


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """Return the path of a file with one key."""
    path = tmp_path / "session.keys"
    write_keys(path, Fernet.generate_key())
    return path


def write_keys(path: Path, *keys: bytes) -> None:
    """Replace the file at once, as an operator does."""
    draft = path.with_suffix(".new")
    draft.write_bytes(b"\n".join(keys))
    draft.chmod(0o600)
    draft.rename(path)


@pytest.fixture
def sites(tmp_path: Path, key_file: Path) -> Iterator[Sites]:
    """Return two API processes that share a database and the keys."""
    conf = write_config(
        tmp_path / "climate.conf",
        database__connection=f"sqlite:///{tmp_path}/c.sqlite",
        simulated__journal=tmp_path / "cloud",
        console__session_key_file=key_file,
    )
    assert main.db_manage(["upgrade", f"--config-file={conf}"]) == 0
    services = [Service(free_port()) for _ in range(2)]
    given = [(f"--config-file={conf}", "--port", str(service.port)) for service in services]
    with (
        running(tmp_path, "climate-api", *given[0]) as first,
        running(tmp_path, "climate-api", *given[1]) as second,
    ):
        for program in (first, second):
            program.says("climate is ready at")
        yield services


def send(
    site: Service, method: str, cookie: str | None, body: Any = None, csrf: str | None = None
) -> requests.Response:
    headers = {"Origin": site.url, **({CSRF: csrf} if csrf else {})}
    headers |= {"Cookie": f"climate={cookie}"} if cookie else {}
    return requests.request(method, f"{site.url}{SESSION}", json=body, headers=headers, timeout=30)


def test_keys_rotate_while_two_processes_serve_the_same_sessions(
    sites: Sites, key_file: Path
) -> None:
    old, new = key_file.read_bytes(), Fernet.generate_key()
    first, second = sites

    def sign_in(site: Service) -> str:
        response = send(site, "POST", None, {"user": "alice", "project": "lab"})
        assert response.status_code == 200, response.text
        return response.cookies["climate"]

    def is_signed_in(site: Service, cookie: str) -> bool:
        return bool(send(site, "GET", cookie).json()["signed_in"])

    before = sign_in(first)
    for keys in ([old, new], [new, old]):
        write_keys(key_file, *keys)
        during = sign_in(second)
        for cookie in (before, during):
            assert is_signed_in(first, cookie)
            assert is_signed_in(second, cookie)
    write_keys(key_file, new)
    assert is_signed_in(first, during)
    assert not is_signed_in(first, before)
    assert not is_signed_in(second, before)
    session = send(second, "GET", during).json()
    changed = send(second, "PUT", during, {"project": "ops"}, session["csrf"])
    assert changed.json()["project"]["id"] == "ops"
