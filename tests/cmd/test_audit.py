"""``climate-manage audit`` prints differences, and the result of each repair."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from climate.cmd import main
from climate.plugins.hosts.simulated import SimulatedCloud
from tests.support.process import write_config
from tests.support.service import Story

Command = Callable[..., int]
Configured = Callable[..., Path]


@pytest.fixture
def configured(story: Story, tmp_path: Path) -> Configured:
    """Return a function that writes a configuration with the database of the story."""

    def write(**options: object) -> Path:
        database = story.conf.database.connection
        return write_config(tmp_path / "climate.conf", database__connection=database, **options)

    return write


@pytest.fixture
def command(story: Story, configured: Configured) -> Command:
    """Return ``climate-manage`` for the story's service."""
    conf = configured(simulated__journal=story.conf.simulated.journal)
    return lambda *arguments: main.manage([*arguments, "--config-file", str(conf)])


def test_each_difference_is_printed_and_sets_the_exit_code(
    story: Story, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("audit") == 0
    story.cloud.withdraw("sim-1")
    story.cloud.boot_server("sim-2", "s1")
    assert command("audit") == 2
    assert capsys.readouterr().out.splitlines() == [
        "found: host sim-1 is registered and open to all projects",
        "found: host sim-2 is free, and has servers s1",
    ]
    assert command("audit", "--repair") == 2
    assert capsys.readouterr().out.splitlines() == [
        "repaired: host sim-1 is registered and open to all projects",
        "found: host sim-2 is free, and has servers s1",
    ]


def test_the_exit_code_is_0_if_all_is_repaired(story: Story, command: Command) -> None:
    story.cloud.withdraw("sim-1")
    assert command("audit", "--repair") == 0
    assert command("audit") == 0


def test_a_repair_by_a_manager_is_announced_and_not_claimed(
    story: Story, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = story.reserve(0, 60)["reservations"][0]["id"]
    story.run()
    (host,) = story.cloud.pool_hosts(pool)
    story.cloud.remove_host(pool, host)
    assert command("audit", "--repair") == 2
    assert capsys.readouterr().out.startswith(f"scheduled: reservation {pool} of lease ")
    story.run()
    assert command("audit") == 0


def test_a_repair_without_effect_is_not_claimed(
    story: Story,
    command: Command,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story.cloud.withdraw("sim-1")
    monkeypatch.setattr(SimulatedCloud, "enroll", lambda *_: None)
    assert command("audit", "--repair") == 2
    said = capsys.readouterr()
    assert said.out == "found: host sim-1 is registered and open to all projects\n"
    assert "the repair had no effect: host sim-1" in said.err


def test_sees_the_simulated_cloud_of_a_standalone_service(
    story: Story, configured: Configured, capsys: pytest.CaptureFixture[str]
) -> None:
    story.reserve(0, 60)
    story.run()
    shutil.copy(story.conf.simulated.journal, f"{story.runtime.database.engine.url.database}.cloud")
    assert main.manage(["audit", "--config-file", str(configured())]) == 0
    assert capsys.readouterr().out == ""


def test_common_options_may_precede_the_command_and_others_belong_to_it(
    story: Story, configured: Configured, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = configured(simulated__journal=story.conf.simulated.journal)
    assert main.manage(["--config-file", str(conf), "--debug", "audit"]) == 0
    first, second = (
        configured().read_text(),
        f"[simulated]\njournal = {story.conf.simulated.journal}",
    )
    conf.write_text(second)
    other = conf.with_name("other.conf")
    other.write_text(first)
    given = [f"--config-file={conf}", "limits", f"--config-file={other}", "show"]
    assert main.manage(given) == 0
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main.manage(["audit", "--limit", "hosts=1"])
    assert stopped.value.code == 2
    assert "unrecognized arguments: --limit" in capsys.readouterr().err


def test_refuses_if_the_simulated_cloud_is_in_the_memory_of_another_process(
    configured: Configured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options, reason in (
        ({}, "[simulated] journal is not set"),
        ({"simulated__journal": tmp_path / "absent"}, f"there is no file {tmp_path}/absent"),
    ):
        for more in ([], ["--repair"]):
            assert main.manage(["audit", *more, "--config-file", str(configured(**options))]) == 1
            said = capsys.readouterr()
            assert said.out == ""
            assert "cannot see the simulated cloud of physical:host" in said.err
            assert reason in said.err
