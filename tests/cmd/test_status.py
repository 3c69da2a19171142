"""``climate-status upgrade check`` reports problems before any program is started."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from climate.cmd.status import program as status
from climate.db.engine import schema
from climate.db.engine.database import Database
from tests.support.process import free_port, write_config


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """Return a maker of checks: the exit code, and code and details of each."""

    def make(**options: object) -> tuple[int, dict[str, tuple[int, str]]]:
        path = write_config(tmp_path / "climate.conf", **options)
        code = status.main([f"--config-file={path}", "upgrade", "check", "--json"])
        checks = json.loads(capsys.readouterr().out)["checks"]
        return code, {item["check"]: (item["result"], item["details"] or "") for item in checks}

    return make


def test_a_sound_installation_passes(check: Any, database_url: str, tmp_path: Path) -> None:
    journal = tmp_path / "cloud"
    code, found = check(database__connection=database_url, simulated__journal=journal)
    failed = {name: what for name, what in found.items() if what[0] and name != "Configuration"}
    assert failed == {}
    assert found["Database and schema"][1] == f"schema {schema.head()}"
    is_server = not database_url.startswith("sqlite")
    assert (code == 1) == is_server, "only a simulated cloud is something to be looked at"


def test_the_schema_of_an_earlier_release_must_be_upgraded(check: Any, sqlite_url: str) -> None:
    database = Database(sqlite_url)
    schema.downgrade(database, "0004")
    code, found = check(database__connection=sqlite_url)
    assert (code, found["Database and schema"][0]) == (1, 1)
    assert "run 'climate-db-manage upgrade'" in found["Database and schema"][1]
    with database.engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = 'ffff'"))
    database.dispose()
    assert check(database__connection=sqlite_url)[0] == 2


def test_the_api_must_be_able_to_check_tokens(check: Any, sqlite_url: str) -> None:
    code, found = check(database__connection=sqlite_url, api__auth_strategy="keystone")
    assert (code, found["Configuration"][0]) == (2, 2)
    assert "[keystone_authtoken] auth_type is not set" in found["Configuration"][1]


def test_unreachable_servers_fail_and_no_password_is_shown(check: Any, sqlite_url: str) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    code, found = check(
        database__connection=f"postgresql+psycopg://me:secret@{nowhere}/climate",
        notifications__transport_url=f"rabbit://me:secret@{nowhere}/",
        manager__plugins="no.such.plugin",
    )
    failed = {name for name, (result, _) in found.items() if result == 2}
    assert code == 2
    assert failed == {"Database and schema", "Clock", "Plugins", "Broker"}
    assert not any("secret" in details for _, details in found.values())


RISKS = [
    ("DEFAULT__host", "0.0.0.0", 2, "not listening on 0.0.0.0"),  # noqa: S104
    ("manager__pol_interval", 3, 1, "[manager] pol_interval is not an option"),
    ("manager__claim_timeout", 1, 1, "poll_interval is not below claim_timeout"),
    ("manager__self_audit_interval", 0, 1, "no manager checks the invariants"),
]


def test_risky_options_are_reported(check: Any, sqlite_url: str) -> None:
    wrong = []
    for option, value, expected, text in RISKS:
        code, found = check(database__connection=sqlite_url, **{option: value})
        if code != expected or text not in found["Configuration"][1]:
            wrong.append((option, code, found["Configuration"]))
    assert wrong == []


def test_a_wrong_clock_is_reported(
    check: Any, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time
    for ahead, expected in ((0, 0), (3, 1), (-90, 2)):
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda ahead=ahead: real() + ahead)
            code, found = check(database__connection=sqlite_url)
        assert (code, found["Clock"][0]) == (expected, expected)


def test_an_invalid_value_is_explained_in_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = write_config(tmp_path / "climate.conf", manager__workers="many")
    assert status.main([f"--config-file={path}", "upgrade", "check"]) == 2
    assert "many" in capsys.readouterr().out


def test_a_closed_pipe_ends_the_check_without_a_traceback(sqlite_url: str, tmp_path: Path) -> None:
    path = write_config(tmp_path / "climate.conf", database__connection=sqlite_url)
    code = "import sys; from climate.cmd.status.program import main; sys.exit(main())"
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", code, f"--config-file={path}", "upgrade", "check"]
    ended = subprocess.run(command, check=False, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")
