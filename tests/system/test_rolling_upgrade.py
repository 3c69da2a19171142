"""The code for the previous schema works on the new schema, beside the new code."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import climate
from climate.cmd import main
from climate.db.engine import schema
from tests.support import servers
from tests.support.process import (
    Service,
    environment,
    eventually,
    free_port,
    reserve,
    running,
    write_config,
)

NIGHTLY = pytest.mark.nightly(reason="runs the programs of the previous schema on each database")

pytestmark = [NIGHTLY, pytest.mark.timeout(600)]

ROOT = Path(climate.__file__).parents[1]
VERSIONS = "climate/db/migrations/versions"


def git(*arguments: str) -> bytes:
    """Return git's output, b"" if it fails."""
    found = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    return found.stdout if found.returncode == 0 else b""


@pytest.fixture(scope="session")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the code before the last migration."""
    (migration,) = (ROOT / VERSIONS).glob(f"{schema.head()}_*.py")
    path = migration.relative_to(ROOT)
    made = git("log", "--diff-filter=A", "--format=%H", "--", str(path)).decode().split()
    archive = git("archive", f"{made[-1]}^", "climate") if made else b""
    if not archive:
        pytest.skip(f"the history before {migration.stem} is not here (a shallow clone?)")
    home = tmp_path_factory.mktemp("old")
    subprocess.run(["tar", "-x", "-C", str(home)], input=archive, check=True)
    assert not (home / path).exists()
    return home


class OldCode:
    """Runs programs of the code in a folder."""

    def __init__(self, code: Path, config: Path) -> None:
        self._code, self._config = code, config

    def _start(self, program: str, *arguments: str, **streams: Any) -> "subprocess.Popen[str]":
        script = f"import sys, climate.cmd.main; sys.exit(climate.cmd.main.{program}())"
        given = [*arguments, f"--config-file={self._config}"]
        home = self._config.parent
        env = {**environment(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(self._code)}
        return subprocess.Popen(
            [sys.executable, "-c", script, *given], cwd=home, env=env, text=True, **streams
        )

    def run(self, program: str, *arguments: str) -> str:
        """Run a program to its end; return its output."""
        process = self._start(program, *arguments, stdout=subprocess.PIPE)
        said, _ = process.communicate()
        assert process.returncode == 0
        return said.strip()

    @contextmanager
    def running(self, program: str, text: str, *arguments: str) -> Iterator[None]:
        """Run a program until it prints ``text``; later it must stop with exit code 0."""
        log = self._config.parent / f"old-{program}.log"
        with log.open("w") as file:
            process = self._start(program, *arguments, stdout=file, stderr=file)
        try:
            eventually(lambda: text in log.read_text(), f"old {program} says {text!r}")
            yield
            process.terminate()
            assert process.wait(60) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()


def live(service: Service, ended_by: Service) -> None:
    """Let one service create a lease and start it, and another one end it."""
    lease = reserve(service)
    ended_by.until_lease_is(lease, "ACTIVE")
    assert ended_by.call("DELETE", f"/v1/leases/{lease}").status_code < 300
    eventually(lambda: service.call("GET", f"/v1/leases/{lease}").status_code == 404, "it is gone")


def test_old_and_new_code_share_the_new_schema(old: Path, backend: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/c.sqlite" if backend == "sqlite" else servers.create(backend)
    config = write_config(
        tmp_path / "climate.conf",
        database__connection=url,
        simulated__journal=tmp_path / "cloud",
        manager__poll_interval=0.1,
        api__delete_wait=0,
    )
    before, after = Service(free_port()), Service(free_port())
    code = OldCode(old, config)
    assert code.run("db_manage", "upgrade") != schema.head()
    with ExitStack() as olds:
        listening = ("--port", str(before.port))
        olds.enter_context(code.running("api", "climate is ready at", *listening))
        olds.enter_context(code.running("manager", "is at work"))
        for name in ("sim-1", "sim-2", "sim-3"):
            before.ok("POST", "/v1/os-hosts", {"name": name})
        kept = reserve(before)
        before.until_lease_is(kept, "ACTIVE")

        assert main.db_manage(["upgrade", f"--config-file={config}"]) == 0
        live(before, before)  # the old code alone
        assert before.ok("GET", "/readyz")["status"] == "ready"

        argument = f"--config-file={config}"
        with (
            running(tmp_path, "climate-api", argument, "--port", str(after.port)) as api,
            running(tmp_path, "climate-manager", argument) as manager,
        ):
            api.says("climate is ready at")
            manager.says("is at work")
            live(before, after)
            live(after, before)
            olds.close()
            assert after.lease(kept)["status"] == "ACTIVE"
            live(after, after)
            assert after.call("DELETE", f"/v1/leases/{kept}").status_code < 300
            told = ["lease.create", "lease.event.start_lease", "lease.event.end_lease"]
            eventually(
                lambda: after.event_types(kept) == [*told, "lease.delete"], "its end is told"
            )
