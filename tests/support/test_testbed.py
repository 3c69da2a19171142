"""The testbed stops only processes that it started."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.openstack.testbed import daemons, layout
from tests.openstack.testbed.daemons import Daemon
from tests.support.process import eventually


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep pid and log files in a folder of the test."""
    monkeypatch.setattr(layout, "RUN", tmp_path)
    monkeypatch.setattr(layout, "LOG", tmp_path)
    return tmp_path


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process
        process.kill()


def test_does_not_stop_another_process_with_a_reused_pid(
    folder: Path, stranger: subprocess.Popen[bytes]
) -> None:
    (folder / "ours.pid").write_text(f"{stranger.pid} 1")
    assert not daemons.is_running("ours")
    daemons.stop("ours")
    assert stranger.poll() is None
    assert daemons.known() == []


def test_starts_a_daemon_once_and_stops_its_children(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemons, "_GRACE", 0.2)
    script = "trap '' TERM; sleep 60 & echo $! >&2; wait; sleep 60"
    daemon = Daemon("ours", ["sh", "-c", script])
    daemon.start()
    known = (folder / "ours.pid").read_text()
    child = int(eventually(daemon.log.read_text, "it names its child"))
    daemon.start()
    assert (folder / "ours.pid").read_text() == known
    daemons.stop("ours")
    assert not daemons.is_running("ours")
    eventually(lambda: daemons._start_tick(child) is None, "its child is gone")


def test_reports_a_daemon_that_cannot_start(folder: Path) -> None:
    daemon = Daemon("ours", ["sh", "-c", "echo no luck; exit 1"], port=1)
    daemon.start()
    with pytest.raises(layout.Failure, match="no luck"):
        daemon.wait()


def test_services_do_not_inherit_openstack_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OS_AUTH_URL", "http://cloud.example.org/v3")
    assert "OS_AUTH_URL" not in layout.environment()
    assert layout.environment(OS_REGION_NAME="one")["OS_REGION_NAME"] == "one"
