"""The programs start fast: they import only what their work needs, and for ``--help`` nothing."""

import contextlib
import subprocess
import sys
from importlib import metadata

import pytest

PROGRAMS = {
    script.name: script.value
    for script in metadata.distribution("climate").entry_points.select(group="console_scripts")
}
HEAVY = {
    "alembic",
    "dateparser",
    "eventlet",
    "flask",
    "heatclient",
    "keystoneauth1",
    "keystonemiddleware",
    "openstack",
    "oslo_messaging",
    "requests",
    "sqlalchemy",
}
# Load the entry point, run it with --help, and print the names of all modules to standard error.
HELP = """
import sys
from importlib.metadata import EntryPoint
try:
    EntryPoint("", sys.argv[1], "").load()(["--help"])
finally:
    sys.stderr.write(" ".join(sys.modules))
"""


def test_each_program_prints_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    for script in metadata.distribution("climate").entry_points.select(group="console_scripts"):
        with contextlib.suppress(SystemExit):
            script.load()(["--version"])
        assert capsys.readouterr().out == f"{script.name} {metadata.version('climate')}\n"


def test_help_imports_no_heavy_module() -> None:
    started = {
        name: subprocess.Popen(
            [sys.executable, "-c", HELP, entry],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, entry in PROGRAMS.items()
    }
    answers = {name: process.communicate() for name, process in started.items()}
    assert "climate-standalone" in answers
    assert [name for name, (help_, _) in answers.items() if not help_.startswith("usage: ")] == []
    heavy = {name: HEAVY & set(modules.split()) for name, (_, modules) in answers.items()}
    assert {name: found for name, found in heavy.items() if found} == {}


# What the module of a program must not import, as most of its start would be spent on that.
NOT_IMPORTED = {
    "climate.cmd.bootstrap": {"eventlet", "oslo_messaging"},
    "climate.cmd.database": {"eventlet", "flask", "novaclient", "oslo_messaging", "waitress"},
    "climate.cmd.listen": {"alembic", "flask", "novaclient", "sqlalchemy", "waitress"},
    "climate.cmd.manage.limits": {"eventlet", "flask", "oslo_messaging", "waitress"},
    "climate.cmd.provisioner": {"alembic", "flask", "sqlalchemy", "waitress"},
}
# For each module, print all modules that it imports in a process of its own, which has imported
# before what all programs do.
IMPORT = """
import os, sys
from importlib import import_module
from climate.cmd import launch
for module in sys.argv[1:]:
    if not os.fork():
        import_module(module)
        print(*sys.modules, flush=True)
        os._exit(0)
    os.wait()
"""


def test_programs_import_only_what_they_need() -> None:
    command = [sys.executable, "-c", IMPORT, *NOT_IMPORTED]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = zip(NOT_IMPORTED, output.splitlines(), strict=True)
    imported = {module: line.split() for module, line in lines}
    assert all(module in found for module, found in imported.items())
    needless = {module: NOT_IMPORTED[module] & set(found) for module, found in imported.items()}
    assert {module: found for module, found in needless.items() if found} == {}
