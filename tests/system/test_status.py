"""``climate-status upgrade check`` logs in to the broker."""

from pathlib import Path

import pytest

from climate.cmd.status import program as status
from tests.support import servers
from tests.support.process import write_config


@pytest.mark.parametrize(("password", "code"), [("guest", 0), ("wrong", 2)])
def test_the_check_fails_if_the_broker_rejects_the_password(
    sqlite_url: str, tmp_path: Path, password: str, code: int
) -> None:
    servers.need("rabbitmq")
    url = servers.RABBITMQ.replace("guest:guest", f"guest:{password}")
    options = {"database__connection": sqlite_url, "notifications__transport_url": url}
    path = write_config(tmp_path / "climate.conf", **options)
    assert status.main([f"--config-file={path}", "upgrade", "check", "--json"]) == code
