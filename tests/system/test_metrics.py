"""A manager serves its metrics on a port of its own."""

from pathlib import Path

import requests

from tests.observability.test_metrics import samples
from tests.support.process import free_port, running, write_config


def test_a_manager_serves_its_metrics_on_its_own_port(sqlite_url: str, tmp_path: Path) -> None:
    port = free_port()
    options = {"database__connection": sqlite_url, "manager__metrics_port": port}
    config = write_config(tmp_path / "climate.conf", **options)
    with running(tmp_path, "climate-manager", f"--config-file={config}") as program:
        program.says("is at work")
        answer = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10)
        assert answer.status_code == 200
        assert samples(answer.text)["climate_database_up", ()] == 1
        with running(tmp_path, "climate-manager", f"--config-file={config}") as second:
            assert second.wait() == 1
            assert f"no metrics on 127.0.0.1:{port}" in second.last_words
