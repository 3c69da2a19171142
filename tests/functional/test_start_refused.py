"""What an operator must mend before a program starts is one sentence, never a stack trace."""

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

from climate import cli
from tests.support import servers
from tests.support.process import Program, free_port, write_config

Program_ = Callable[[Sequence[str]], int]


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return what runs a program of ours that must refuse to start, and returns its sentence."""

    def run(program: Program_, *arguments: object) -> str:
        assert program([str(argument) for argument in arguments]) == 1
        lines = capsys.readouterr().err.splitlines()
        assert "Traceback" not in "".join(lines)
        return lines[-1]

    return run


@pytest.fixture
def empty_url(backend: str, tmp_path: Path) -> str:
    """Return the URL of a database without our schema, of each kind."""
    return f"sqlite:///{tmp_path}/empty.sqlite" if backend == "sqlite" else servers.create(backend)


@pytest.mark.parametrize("program", [cli.api, cli.manager])
def test_an_empty_database_must_be_upgraded_first(
    program: Program_, empty_url: str, tmp_path: Path, refusal: Callable[..., str]
) -> None:
    conf = write_config(tmp_path / "climate.conf", database__connection=empty_url)
    said = refusal(program, "--config-file", conf)
    assert "is empty" in said
    assert "run 'climate-db-manage upgrade'" in said


@pytest.mark.parametrize("program", [cli.api, cli.manager])
def test_a_schema_of_another_release_is_not_touched(
    program: Program_, sqlite_url: str, tmp_path: Path, refusal: Callable[..., str]
) -> None:
    engine = sa.create_engine(sqlite_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    engine.dispose()
    conf = write_config(tmp_path / "climate.conf", database__connection=sqlite_url)
    assert "9999, which this release does not know" in refusal(program, "--config-file", conf)


def test_the_schema_is_upgraded_checked_and_removed(
    empty_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], refusal: Callable[..., str]
) -> None:
    conf = write_config(tmp_path / "climate.conf", database__connection=empty_url)

    def manage(*arguments: str) -> str:
        assert cli.db_manage([*arguments, "--config-file", str(conf)]) == 0
        return capsys.readouterr().out.strip()

    assert manage("current") == "empty"
    assert "run 'climate-db-manage upgrade'" in refusal(
        cli.db_manage, "check", "--config-file", conf
    )
    revision = manage("upgrade")
    assert revision == manage("upgrade") == manage("current") == manage("check") != "empty"
    assert manage("downgrade", "base") == "empty"
    assert manage("upgrade", "--debug") == revision  # whatever is logged goes elsewhere


def test_a_downgrade_must_say_how_far(sqlite_url: str, refusal: Callable[..., str]) -> None:
    said = refusal(cli.db_manage, "downgrade", "--database", sqlite_url)
    assert "'base' removes everything" in said


def test_an_unknown_revision_is_named(sqlite_url: str, refusal: Callable[..., str]) -> None:
    assert "nonsense" in refusal(cli.db_manage, "upgrade", "nonsense", "--database", sqlite_url)


@pytest.mark.parametrize("program", [cli.api, cli.manager, cli.standalone])
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"manager__plugins": "physical.host.plugin,no.such.plugin"}, "no.such.plugin"),
        (
            {"manager__plugins": "physical.host.plugin,physical.host.plugin"},
            "two enabled plugins serve physical:host",
        ),
        ({"physical:host__cloud": "no-such-cloud"}, "no-such-cloud"),
        ({"manager__filters": "no_such"}, "[manager] filters: no_such"),
        ({"manager__weighers": "lowest_id=2,no_such=1"}, "[manager] weighers: no_such"),
    ],
)
def test_a_plugin_that_is_missing_stops_the_start(
    program: Program_,
    options: dict[str, str],
    reason: str,
    sqlite_url: str,
    tmp_path: Path,
    refusal: Callable[..., str],
) -> None:
    conf = write_config(tmp_path / "c.conf", database__connection=sqlite_url, **options)
    assert reason in refusal(program, "--config-file", conf)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])  # noqa: S104 - refused
@pytest.mark.parametrize("program", [cli.api, cli.standalone])
def test_without_authentication_only_this_machine_is_served(
    program: Program_, host: str, refusal: Callable[..., str]
) -> None:
    said = refusal(program, "--host", host)
    assert f"not listening on {host}: there is no authentication" in said
    assert "serve_unauthenticated_to_the_network" in said


@pytest.mark.slow
def test_a_port_in_use_is_named_before_any_work_is_done(tmp_path: Path) -> None:
    database = tmp_path / "new.sqlite"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = ("--database", f"sqlite:///{database}", "--port", str(port))
        program = Program(tmp_path, "climate-standalone", *arguments)
        assert program.wait() == 1
    assert program.last_words.startswith(
        f"climate-standalone: cannot listen on 127.0.0.1:{port}: Address already in use"
    )
    assert "Traceback" not in program.errors
    assert not database.exists()


@pytest.mark.parametrize("program", [cli.standalone, cli.db_manage, cli.manager])
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("nonsense", "Could not parse"),
        ("nosuchdb://127.0.0.1/climate", "nosuchdb"),
        ("postgresql+nosuchdriver://127.0.0.1/climate", "nosuchdriver"),
        ("postgresql+psycopg2://127.0.0.1/climate", "psycopg2"),
        ("oracle://127.0.0.1/climate", "oracle"),
        ("postgresql+psycopg://u:secret@127.0.0.1:{port}/c", "cannot use the database"),
        ("mysql+pymysql://u:secret@127.0.0.1:{port}/c", "cannot use the database"),
        ("sqlite:///{tmp_path}/no/such/folder/c.sqlite", "unable to open database file"),
        ("sqlite:///{tmp_path}", "unable to open database file"),
        ("sqlite://", "memory"),
    ],
)
def test_a_wrong_database_is_named(
    program: Program_, url: str, reason: str, tmp_path: Path, refusal: Callable[..., str]
) -> None:
    conf = write_config(
        tmp_path / "c.conf",
        database__connection=url.format(port=free_port(), tmp_path=tmp_path),
    )
    command = ["upgrade"] if program is cli.db_manage else []
    said = refusal(program, *command, "--config-file", conf)
    assert said.startswith("climate-")
    assert reason in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"manager__workers": "0"}, "workers"),
        ({"manager__before_start_leads": "60,soon"}, "before_start_leads"),
        ({"DEFAULT__cleaning_time": "-1"}, "cleaning_time"),
        ({"DEFAULT__port": "70000"}, "port"),
        ({"api__auth_strategy": "magic"}, "auth_strategy"),
        ({"api__auth_strategy": "keystone"}, "[keystone_authtoken] auth_type is not set"),
        (
            {"api__auth_strategy": "keystone", "keystone_authtoken__auth_type": "password"},
            "auth_url",
        ),
        (
            {"api__auth_strategy": "keystone", "keystone_authtoken__auth_type": "nosuch"},
            "nosuch",
        ),
        ({"notifications__transport_url": "nosuch://127.0.0.1/"}, "nosuch"),
        ({"notifications__transport_url": "nonsense"}, "transport_url"),
        ({"notifications__transport_url": "rabbit://u:secret@127.0.0.1:p/"}, "transport_url"),
        ({"DEFAULT__log_file": "/no/such/folder/climate.log"}, "/no/such/folder"),
        ({"DEFAULT__log_config_append": "/no/such/file"}, "/no/such/file"),
    ],
)
def test_a_wrong_option_is_named(
    options: dict[str, str],
    reason: str,
    sqlite_url: str,
    tmp_path: Path,
    refusal: Callable[..., str],
) -> None:
    conf = write_config(tmp_path / "c.conf", database__connection=sqlite_url, **options)
    said = refusal(cli.standalone, "--config-file", conf)
    assert reason in said
    assert "secret" not in said


def test_a_configuration_file_that_is_missing_is_named(refusal: Callable[..., str]) -> None:
    assert "/no/such.conf" in refusal(cli.manager, "--config-file", "/no/such.conf")


def test_a_configuration_file_that_is_malformed_is_named(
    tmp_path: Path, refusal: Callable[..., str]
) -> None:
    path = tmp_path / "c.conf"
    path.write_text("this is no option\n")
    assert str(path) in refusal(cli.manager, "--config-file", path)


@pytest.mark.parametrize("port", ["70000", "-1", "http"])
def test_a_port_that_is_none_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.standalone(["--port", port])
    assert stopped.value.code == 2
    assert port in capsys.readouterr().err
