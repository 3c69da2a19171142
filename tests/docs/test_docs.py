"""What exists is documented: commands, options, errors, routes, events.

The lists come from the code, so that what is new is asked for by itself.
"""

import configparser
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from climate.api import app
from climate.config import GROUPS
from climate.core import schedule
from climate.core.errors import ClimateError

ROOT = Path(__file__).parents[2]
README = "README.md"
API = "docs/api.md"
API_2 = "docs/api-v2.md"
CONFIGURATION = "docs/configuration.md"


@cache
def text(name: str) -> str:
    """The text of a document; a missing one says nothing."""
    path = ROOT / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


@cache
def docs() -> str:
    """The text of all documents below docs/."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("docs/**/*.md")))


def says(document: str, word: str) -> bool:
    """Tell whether ``word`` stands in the document as a whole."""
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", document) is not None


def section(document: str, title: str) -> str:
    """Return what stands under the first heading with ``title`` in it, up to the next like it."""
    lines = document.splitlines()
    for at, line in enumerate(lines):
        if line.startswith("#") and says(line, title):
            level = len(line) - len(line.lstrip("#"))
            rest = lines[at + 1 :]
            ends = (n for n, one in enumerate(rest) if re.match(rf"#{{1,{level}}} ", one))
            return "\n".join(rest[: next(ends, len(rest))])
    return ""


def make_targets() -> set[str]:
    """The targets that the Makefile describes."""
    return set(re.findall(r"^([a-z][\w-]*):.*##", text("Makefile"), re.MULTILINE))


def console_scripts() -> list[str]:
    """The programs that setup.cfg installs."""
    setup = configparser.ConfigParser()
    setup.read_string(text("setup.cfg"))
    lines = setup["options.entry_points"]["console_scripts"].split("\n")
    return [line.partition("=")[0].strip() for line in lines if line.strip()]


def options() -> list[tuple[str, str]]:
    """All options as (group, name)."""
    return [(group, option.name) for group, found in GROUPS.items() for option in found]


def errors(base: type[ClimateError] = ClimateError) -> Iterator[type[ClimateError]]:
    """All refusals that a loaded module defines."""
    for error in base.__subclasses__():
        yield error
        yield from errors(error)


def routes() -> list[str]:
    """All routes as ``METHOD /path/<id>``."""
    return [f"{method} {path}" for method, path, *_ in (*app.OPEN, *app.ROUTES)]


def event_kinds() -> list[str]:
    """All kinds of events that the service itself makes."""
    names = ("BEFORE_START", "START", "UPDATE", "BEFORE_END", "END")
    return [getattr(schedule, name) for name in names]


class TestTheLists:
    """An empty list would be documented by nothing."""

    def test_they_are_read(self) -> None:
        assert {"run", "test", "help"} <= make_targets()
        assert "climate-standalone" in console_scripts()
        assert ("manager", "poll_interval") in options()
        assert "not_found" in {error.code for error in errors()}
        assert "GET /v1/leases/<lease_id>" in routes()
        assert set(schedule.ACTIONS) < set(event_kinds())

    def test_a_word_is_found_only_as_a_whole(self) -> None:
        assert says("run `make test`.", "test")
        assert not says("run make test-sqlite", "test")

    def test_a_section_ends_where_the_next_begins(self) -> None:
        assert section("# a\n## `b`\none\n### c\ntwo\n## d\nthree", "b") == "one\n### c\ntwo"


def test_the_readme_names_only_targets_that_the_makefile_has() -> None:
    named = set(re.findall(r"\bmake ((?!-)[a-z][a-z-]*)", " ".join(commands(text(README)))))
    assert named, "the README says how to run it"
    assert named <= make_targets()


def commands(document: str) -> list[str]:
    """What is set as code: fenced blocks and spans."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", document, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```", "", document, flags=re.MULTILINE | re.DOTALL)
    return blocks + re.findall(r"`([^`\n]+)`", rest)


@pytest.mark.parametrize("script", console_scripts())
def test_every_program_is_mentioned(script: str) -> None:
    assert says(text(README) + docs(), script)


@pytest.mark.parametrize("group", GROUPS)
def test_every_group_of_options_has_a_section(group: str) -> None:
    assert section(text(CONFIGURATION), group)


@pytest.mark.parametrize(("group", "option"), options())
def test_every_option_is_documented_in_the_section_of_its_group(group: str, option: str) -> None:
    assert says(section(text(CONFIGURATION), group), option)


@pytest.mark.parametrize("group", GROUPS)
def test_no_option_is_documented_that_does_not_exist(group: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \|", section(text(CONFIGURATION), group), re.MULTILINE)
    assert set(rows) <= {option.name for option in GROUPS[group]}


@pytest.mark.parametrize(("code", "status"), sorted({(e.code, e.status) for e in errors()}))
def test_every_error_code_is_documented_with_its_status(code: str, status: int) -> None:
    assert f"| `{code}` | {status} |" in text(API)


def test_no_error_code_is_documented_that_does_not_exist() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d{3}) \|", section(text(API), "Errors"), re.MULTILINE)
    real = {(error.code, str(error.status)) for error in (ClimateError, *errors())}
    assert set(rows) == real


@pytest.mark.parametrize("route", routes())
def test_every_route_is_documented(route: str) -> None:
    page = text(API_2 if " /v2" in route else API)
    assert re.search(rf"{re.escape(route)}(?![\w/<-])", page)


@pytest.mark.parametrize("kind", event_kinds())
def test_every_kind_of_event_is_documented(kind: str) -> None:
    assert says(docs(), kind)


def shown_by() -> list[str]:
    """Return the tests that the comparison names."""
    return sorted(set(re.findall(r"`(tests/[\w/.:]+)`", text("docs/comparison.md"))))


@pytest.mark.parametrize("named", shown_by())
def test_every_test_that_is_said_to_show_something_exists(named: str) -> None:
    path, _, name = named.partition("::")
    assert (ROOT / path).is_file()
    assert not name or f"def {name}(" in text(path)
