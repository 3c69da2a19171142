"""climate-status upgrade check: what is wrong before anything is started."""

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from climate import status
from climate.db import schema
from climate.db.engine import Database
from tests import servers
from tests.process import free_port, write_config


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """Return a maker of checks: the exit code, and code and details of each."""

    def make(**options: object) -> tuple[int, dict[str, tuple[int, str]]]:
        path = write_config(tmp_path / "climate.conf", **options)
        code = status.main([f"--config-file={path}", "upgrade", "check", "--json"])
        checks = json.loads(capsys.readouterr().out)["checks"]
        return code, {one["check"]: (one["result"], one["details"] or "") for one in checks}

    return make


def test_an_installation_that_is_in_order(told: Any, database_url: str, tmp_path: Path) -> None:
    journal = tmp_path / "cloud"
    code, found = told(database__connection=database_url, simulated__journal=journal)
    failed = {name: what for name, what in found.items() if what[0] and name != "Configuration"}
    assert failed == {}
    assert found["Database and schema"][1] == f"schema {schema.head()}"
    is_server = not database_url.startswith("sqlite")
    assert (code == 1) == is_server, "only a simulated cloud is something to be looked at"


def test_the_schema_of_an_earlier_release_is_to_be_upgraded(told: Any, sqlite_url: str) -> None:
    database = Database(sqlite_url)
    schema.downgrade(database, "0004")
    code, found = told(database__connection=sqlite_url)
    assert (code, found["Database and schema"][0]) == (1, 1)
    assert "run 'climate-db-manage upgrade'" in found["Database and schema"][1]
    with database.engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = 'ffff'"))
    database.dispose()
    assert told(database__connection=sqlite_url)[0] == 2


def test_what_cannot_be_reached_is_a_failure(told: Any, sqlite_url: str) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    code, found = told(
        database__connection=f"postgresql+psycopg://me:secret@{nowhere}/climate",
        notifications__transport_url=f"rabbit://me:secret@{nowhere}/",
        manager__plugins="no.such.plugin",
    )
    failed = {name for name, (result, _) in found.items() if result == 2}
    assert code == 2
    assert failed == {"Database and schema", "Clock", "Plugins", "Broker"}
    assert not any("secret" in details for _, details in found.values())


def test_a_broker_that_lets_us_in(told: Any, sqlite_url: str) -> None:
    servers.need("rabbitmq")
    url = servers.RABBITMQ
    assert told(database__connection=sqlite_url, notifications__transport_url=url)[0] == 0
    wrong = url.replace("guest:guest", "guest:wrong")
    assert told(database__connection=sqlite_url, notifications__transport_url=wrong)[0] == 2


@pytest.mark.parametrize(
    ("option", "value", "code", "words"),
    [
        ("DEFAULT__host", "0.0.0.0", 2, "not listening on 0.0.0.0"),  # noqa: S104
        ("manager__pol_interval", 3, 1, "[manager] pol_interval, which is no option"),
        ("manager__claim_timeout", 1, 1, "poll_interval is not below claim_timeout"),
        ("manager__self_audit_interval", 0, 1, "nobody checks the invariants"),
    ],
)
def test_a_configuration_that_one_would_regret(
    told: Any, sqlite_url: str, option: str, value: object, code: int, words: str
) -> None:
    got, found = told(database__connection=sqlite_url, **{option: value})
    assert got == code
    assert words in found["Configuration"][1]


@pytest.mark.parametrize(("ahead", "code"), [(0, 0), (3, 1), (-90, 2)])
def test_a_clock_that_is_wrong(
    told: Any, sqlite_url: str, monkeypatch: pytest.MonkeyPatch, ahead: float, code: int
) -> None:
    real = status.time.time
    monkeypatch.setattr(status.time, "time", lambda: real() + ahead)
    got, found = told(database__connection=sqlite_url)
    assert (got, found["Clock"][0]) == (code, code)


def test_a_value_that_cannot_be_is_told_in_a_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = write_config(tmp_path / "climate.conf", manager__workers="many")
    assert status.main([f"--config-file={path}", "upgrade", "check"]) == 2
    assert "many" in capsys.readouterr().out
