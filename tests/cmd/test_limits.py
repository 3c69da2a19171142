"""``climate-manage limits`` sets, shows and removes limits."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from climate.cmd import main
from tests.support.process import write_config
from tests.support.service import Story, host_reservation

Command = Callable[..., int]


def rows(table: str) -> list[str]:
    """Return the rows of a table with one space between two cells."""
    return [" ".join(line.split()) for line in table.splitlines()]


@pytest.fixture
def command(story: Story, tmp_path: Path) -> Command:
    """Return ``climate-manage limits`` for the story's service, with limits enabled."""
    path = write_config(
        tmp_path / "climate.conf",
        database__connection=story.runtime.database.engine.url.render_as_string(),
        simulated__journal=tmp_path / "cloud",
        limits__enabled=True,
        limits__project_leases=7,
    )
    return lambda *given: main.manage(["limits", *given, "--config-file", str(path)])


def test_limits_are_set_shown_and_unset(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command() == 0
    assert capsys.readouterr() == ("", "")
    assert command("set", "--project", "lab", "--limit", "hosts=4", "--limit", "vcpus=-1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "SCOPE    ID   LIMIT             MAXIMUM  USED  SOURCE",
        "project  lab  leases            7        0     default",
        "project  lab  hosts             4        0     own",
        "project  lab  vcpus             -1       0     own",
    ]
    assert "project  lab  duration          -1       -     default" in lines
    assert command("set", "--user", "eve", "--limit", "leases=0") == 0
    capsys.readouterr()
    assert command("show") == 0
    shown = rows(capsys.readouterr().out)
    assert "project lab hosts 4 0 own" in shown
    assert "user eve leases 0 0 own" in shown
    assert command("unset", "--project", "lab", "--limit", "hosts") == 0
    assert "project lab hosts -1 0 default" in rows(capsys.readouterr().out)
    assert command("unset", "--project", "lab", "--user", "eve") == 0
    assert command("show") == 0
    assert " own" not in capsys.readouterr().out.splitlines()[-1]


def test_usage_is_shown(command: Command, story: Story, capsys: pytest.CaptureFixture[str]) -> None:
    small = host_reservation(hypervisor_properties='["==", "$vcpus", "16"]')  # others have 64
    body = story.lease_body(60, 150, reservations=[small])
    story.ok("POST", "/v1/leases", body, token="alice:lab")
    assert command("show", "--project", "lab") == 0
    lines = rows(capsys.readouterr().out)
    assert lines[1] == "project lab leases 7 1 default"
    assert "project lab host_hours -1 1.5 default" in lines
    assert command("--project", "lab", "--json") == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert (shown["scope"], shown["id"], shown["own"]) == ("project", "lab", [])
    assert (shown["limits"]["leases"], shown["limits"]["hosts"]) == (7, None)
    assert shown["used"].pop("vcpus") in (16.0, 64.0), "hosts of two sizes match"
    others = dict.fromkeys(("gigabytes", "floatingips", "networks"), 0)
    assert shown["used"] == {"leases": 1, "hosts": 1, "host_hours": 1.5, **others}


def test_a_warning_names_a_project_that_never_had_a_lease(
    command: Command, story: Story, capsys: pytest.CaptureFixture[str]
) -> None:
    story.ok("POST", "/v1/leases", story.lease_body(60, 150), token="alice:lab")
    limit = ("--limit", "hosts=4")
    for arguments, unknown in (
        (("--project", "lab", "--user", "alice"), ""),
        (("--project", "lba"), "project lba is unknown"),
        (("--project", "lba"), ""),  # whose limits are known now
        (("--user", "alcie"), "user alcie is unknown"),
    ):
        assert command("set", *arguments, *limit) == 0
        warning = capsys.readouterr().err
        assert unknown in warning
        assert bool(warning) == bool(unknown)


INVALID = [
    (["set", "--limit", "hosts=1"], "needs --project or --user"),
    (["set", "--project", "lab", "--limit", "hosts"], "give it as NAME=NUMBER"),
    (["set", "--project", "lab", "--limit", "hots=1"], "There is no limit hots"),
    (["set", "--project", "lab", "--limit", "hosts=-2"], "must be -1 (unlimited) or from 0"),
    (["unset", "--project", "lab", "--limit", "hots"], "There is no limit hots"),
]


def test_invalid_arguments_are_explained_in_one_sentence(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = [(command(*arguments), capsys.readouterr().err) for arguments, _ in INVALID]
    assert {code for code, _ in codes} == {1}
    wrong = [
        (error, text)
        for (_, error), (_, text) in zip(codes, INVALID, strict=True)
        if text not in error
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("project_leases", "enforced"), [("7", "only project_leases is"), ("-1", "none is")]
)
def test_limits_that_are_not_enforced_are_shown_as_stored(
    project_leases: str,
    enforced: str,
    story: Story,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = story.runtime.database.engine.url.render_as_string()
    path = write_config(
        tmp_path / "climate.conf", database__connection=url, limits__project_leases=project_leases
    )
    given = ["limits", "set", "--project", "lab", "--limit", "hosts=40", "--limit", "leases=5"]
    assert main.manage([*given, "--config-file", str(path)]) == 0
    shown = capsys.readouterr()
    lines = rows(shown.out)
    assert "project lab hosts 40 (not enforced) 0 own" in lines
    assert "project lab vcpus -1 0 default" in lines
    mark = "" if project_leases == "7" else " (not enforced)"
    assert f"project lab leases 5{mark} 0 own" in lines
    assert f"these limits are stored, but {enforced} enforced" in shown.err
    assert main.manage(["limits", "--json", "--config-file", str(path)]) == 0
    (account,) = json.loads(capsys.readouterr().out)
    assert account["stored"] == {"hosts": 40, "leases": 5}
