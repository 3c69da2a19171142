"""The code for the previous schema works on the new schema, beside the new code."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from climate.cmd import main
from climate.db.engine import schema
from tests.support import servers
from tests.support.previous import OldCode, code_before
from tests.support.process import Service, eventually, free_port, reserve, running, write_config

NIGHTLY = pytest.mark.nightly(reason="runs the programs of the previous schema on each database")

pytestmark = [NIGHTLY, pytest.mark.timeout(600)]


@pytest.fixture(scope="session")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the code before the last migration."""
    return code_before(schema.head(), tmp_path_factory.mktemp("old"))


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
