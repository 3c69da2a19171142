"""Programs that cannot start say why in one sentence, without a stack trace."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from climate.cmd import main
from climate.cmd.status import program as status
from tests.support import servers
from tests.support.process import free_port, write_config

Program = Callable[[Sequence[str]], int]
Rejection = Callable[..., str]


@pytest.fixture
def rejection(capsys: pytest.CaptureFixture[str]) -> Rejection:
    """Return a function that runs a program which must not start, and returns its error."""

    def run(program: Program, *arguments: object) -> str:
        assert program([str(argument) for argument in arguments]) == 1
        lines = capsys.readouterr().err.splitlines()
        assert "Traceback" not in "".join(lines)
        return lines[-1]

    return run


@pytest.fixture
def empty_url(backend: str, tmp_path: Path) -> str:
    """Return the URL of a database without tables."""
    if backend != "sqlite":
        return servers.create(backend)
    (tmp_path / "empty.sqlite").touch()
    return f"sqlite:///{tmp_path}/empty.sqlite"


@pytest.fixture
def configured(tmp_path: Path, sqlite_url: str) -> Callable[..., Path]:
    """Return a function that writes a configuration file."""

    def write(**options: str) -> Path:
        database = {"database__connection": sqlite_url}
        return write_config(tmp_path / "climate.conf", **{**database, **options})

    return write


def test_the_schema_must_be_upgraded_before_a_program_starts(
    empty_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], rejection: Rejection
) -> None:
    conf = write_config(tmp_path / "climate.conf", database__connection=empty_url)

    def manage(*arguments: str) -> str:
        assert main.db_manage([*arguments, "--config-file", str(conf)]) == 0
        return capsys.readouterr().out.strip()

    for program in (main.api, main.manager):
        message = rejection(program, "--config-file", conf)
        assert "is empty" in message
        assert "run 'climate-db-manage upgrade'" in message
    assert manage("current") == "empty"
    message = rejection(main.db_manage, "check", "--config-file", conf)
    assert "run 'climate-db-manage upgrade'" in message
    revision = manage("upgrade")
    assert revision == manage("upgrade") == manage("current") == manage("check") != "empty"
    assert manage("downgrade", "base") == "empty"
    assert manage("upgrade", "--debug") == revision  # log lines do not go to standard output


def test_db_manage_names_the_database_on_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.db_manage(["upgrade", "--database", "sqlite:///c.sqlite?timeout=9"]) == 0
    written = capsys.readouterr()
    revision = written.out.strip()
    assert revision.isdecimal()
    named = f"the schema of sqlite:///{tmp_path}/c.sqlite is at {revision}"
    assert written.err.splitlines()[-1] == f"climate-db-manage: {named}"


def test_an_sqlite_file_that_cannot_be_opened_is_named_with_the_reason(
    tmp_path: Path, configured: Callable[..., Path], rejection: Rejection
) -> None:
    (tmp_path / "folder").mkdir()
    for name, reason in [
        ("absent/c.sqlite", f"the folder {tmp_path}/absent does not exist"),
        ("folder", f"{tmp_path}/folder is a folder"),
    ]:
        conf = configured(database__connection=f"sqlite:///{tmp_path}/{name}")
        assert reason in rejection(main.db_manage, "upgrade", "--config-file", conf)


def test_no_program_but_an_upgrade_creates_a_database(tmp_path: Path, rejection: Rejection) -> None:
    path = tmp_path / "absent.sqlite"
    conf = write_config(tmp_path / "climate.conf", database__connection=f"sqlite:///{path}")
    commands: list[tuple[Program, list[str]]] = [
        (main.api, []),
        (main.manager, []),
        (main.manage, ["audit"]),
        (main.manage, ["limits"]),
        (main.db_manage, ["current"]),
        (main.db_manage, ["check"]),
        (main.db_manage, ["downgrade", "base"]),
    ]
    for program, arguments in commands:
        message = rejection(program, *arguments, "--config-file", conf)
        assert f"there is no database {path}: run 'climate-db-manage upgrade'" in message
    assert status.main([f"--config-file={conf}", "upgrade", "check"]) == 2
    assert list(tmp_path.iterdir()) == [conf]


def test_names_unknown_schema_revisions(
    sqlite_url: str, configured: Callable[..., Path], rejection: Rejection
) -> None:
    message = rejection(main.db_manage, "downgrade", "--database", sqlite_url)
    assert "'base' removes everything" in message
    message = rejection(main.db_manage, "upgrade", "nonsense", "--database", sqlite_url)
    assert "nonsense" in message
    engine = sa.create_engine(sqlite_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    engine.dispose()
    for program in (main.api, main.manager):
        message = rejection(program, "--config-file", configured())
        assert "9999, which this release does not know" in message


PLUGINS = "manager__plugins"


@pytest.mark.parametrize("program", [main.api, main.manager, main.standalone])
def test_names_plugins_clouds_filters_and_weighers_that_do_not_exist(
    program: Program, configured: Callable[..., Path], rejection: Rejection
) -> None:
    for options, reason in [
        ({PLUGINS: "physical.host.plugin,no.such.plugin"}, "no.such.plugin"),
        (
            {PLUGINS: "physical.host.plugin,physical.host.plugin"},
            "two enabled plugins serve physical:host",
        ),
        ({"physical:host__cloud": "no-such-cloud"}, "no-such-cloud"),
        ({"manager__filters": "no_such"}, "[manager] filters: no installed package offers no_such"),
        (
            {"manager__weighers": "lowest_id=2,no_such=1"},
            "[manager] weighers: no installed package offers no_such",
        ),
    ]:
        assert reason in rejection(program, "--config-file", configured(**options))


def test_serves_only_the_local_machine_without_authentication(rejection: Rejection) -> None:
    for program in (main.api, main.standalone):
        for host in ("0.0.0.0", "::", "192.0.2.1"):  # noqa: S104 - rejected
            message = rejection(program, "--host", host)
            assert f"not listening on {host}: there is no authentication" in message
            assert "serve_unauthenticated_to_the_network" in message


@pytest.mark.parametrize("program", [main.standalone, main.db_manage, main.manager])
def test_names_an_unusable_database_without_its_password(
    program: Program, configured: Callable[..., Path], rejection: Rejection, tmp_path: Path
) -> None:
    port = free_port()
    # Standalone opens its port before the database: it must not meet another service there.
    commands: dict[Program, list[Any]] = {
        main.db_manage: ["upgrade"],
        main.standalone: ["--port", free_port()],
    }
    for url, reason in [
        ("nonsense", "Could not parse"),
        ("nosuchdb://127.0.0.1/climate", "nosuchdb"),
        ("postgresql+nosuchdriver://127.0.0.1/climate", "nosuchdriver"),
        ("postgresql+psycopg2://127.0.0.1/climate", "psycopg2"),
        ("oracle://127.0.0.1/climate", "oracle"),
        (f"postgresql+psycopg://u:secret@127.0.0.1:{port}/c", "cannot use the database"),
        (f"mysql+pymysql://u:secret@127.0.0.1:{port}/c", "cannot use the database"),
        (
            f"sqlite:///{tmp_path}/no/such/folder/c.sqlite",
            "there is no database" if program is main.manager else "unable to open database file",
        ),
        (f"sqlite:///{tmp_path}", "unable to open database file"),
        ("sqlite://", "memory"),
    ]:
        command = commands.get(program, [])
        conf = configured(database__connection=url)
        message = rejection(program, *command, "--config-file", conf)
        assert message.startswith("climate-")
        assert reason in message
        assert "secret" not in message


def test_names_an_invalid_option(configured: Callable[..., Path], rejection: Rejection) -> None:
    keystone = {"api__auth_strategy": "keystone"}
    mail = {
        "api__public_url": "https://climate.example.org",
        "email__server": "mail.example.org",
        "email__sender": "climate@example.org",
    }
    for options, reason in [
        ({"manager__workers": "0"}, "workers"),
        ({"manager__before_start_leads": "60,soon"}, "before_start_leads"),
        ({"DEFAULT__cleaning_time": "-1"}, "cleaning_time"),
        ({"DEFAULT__port": "70000"}, "port"),
        ({"api__auth_strategy": "magic"}, "auth_strategy"),
        (keystone, "[keystone_authtoken] auth_type is not set"),
        ({**keystone, "keystone_authtoken__auth_type": "password"}, "auth_url"),
        ({**keystone, "keystone_authtoken__auth_type": "nosuch"}, "nosuch"),
        ({"notifications__transport_url": "nosuch://127.0.0.1/"}, "nosuch"),
        ({"notifications__transport_url": "nonsense"}, "transport_url"),
        ({"notifications__transport_url": "rabbit://u:secret@127.0.0.1:p/"}, "transport_url"),
        ({"virtual:stack__notification_transport_url": "rabbit://u:secret@h:p/"}, "cannot be used"),
        ({"notifications__webhook_secret_keys": "the-secret-key"}, "webhook_secret_keys"),
        ({"email__server": "mail.example.org"}, "[api] public_url is not"),
        ({"api__public_url": "climate.example.org"}, "[api] public_url must be a URL"),
        ({**mail, "email__sender": "nobody"}, "[email] sender must be an address"),
        ({**mail, "email__user": "climate"}, "user and password must be set together"),
        (
            {**mail, "email__user": "u", "email__password": "p", "email__security": "none"},
            "would send the password in clear",
        ),
        ({**mail, "email__cafile": "/no/such/file"}, "[email] cafile"),
        ({"DEFAULT__log_file": "/no/such/folder/climate.log"}, "/no/such/folder"),
        ({"DEFAULT__log_config_append": "/no/such/file"}, "/no/such/file"),
    ]:
        message = rejection(main.standalone, "--config-file", configured(**options))
        assert reason in message
        assert "secret" not in message.replace("webhook_secret_keys", "")


def test_names_a_missing_or_malformed_file_and_an_invalid_port(
    tmp_path: Path, rejection: Rejection, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "/no/such.conf" in rejection(main.manager, "--config-file", "/no/such.conf")
    path = tmp_path / "malformed.conf"
    path.write_text("this is no option\n")
    assert str(path) in rejection(main.manager, "--config-file", path)
    for port in ("70000", "-1", "http"):
        with pytest.raises(SystemExit) as stopped:
            main.standalone(["--port", port])
        assert stopped.value.code == 2
        assert port in capsys.readouterr().err
