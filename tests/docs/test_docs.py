"""The documentation covers every command, option, error, route and event kind.

The lists come from the code, so a new entry fails here until it is documented. Paths, tests and
links that the documentation names must exist.
"""

import configparser
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from climate.api import app
from climate.api.errors.catalogue import CODES
from climate.config.registry import GROUPS
from climate.core.errors import ClimateError
from climate.core.lease import schedule
from climate.core.notifications import event_type
from tests.docs import error_codes
from tests.support.service import Story

ROOT = Path(__file__).parents[2]
README = "README.md"
API = "docs/api.md"
API_2 = "docs/api-v2.md"
ERRORS = "docs/errors.md"
CONFIGURATION = "docs/configuration.md"
THREATS = "docs/threat-model.md"
# The first folder of a path in the repository, or of one below climate/.
FOLDERS = {path.name for parent in (ROOT, ROOT / "climate") for path in parent.iterdir()}


@cache
def text(name: str) -> str:
    """Return the text of a document, "" if it does not exist."""
    path = ROOT / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


@cache
def docs() -> str:
    """Return the text of all documents below docs/."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("docs/**/*.md")))


def mentions(document: str, word: str) -> bool:
    """Return whether the document contains ``word`` as a whole word."""
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", document) is not None


@cache
def section(document: str, title: str) -> str:
    """Return the text below the first heading that contains ``title``, up to the next heading."""
    lines = document.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("#") and mentions(line, title):
            level = len(line) - len(line.lstrip("#"))
            rest = lines[number + 1 :]
            ends = (n for n, text in enumerate(rest) if re.match(rf"#{{1,{level}}} ", text))
            return "\n".join(rest[: next(ends, len(rest))])
    return ""


def code_spans(document: str) -> list[str]:
    """Return everything that is set as code: fenced blocks and spans."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", document, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```", "", document, flags=re.MULTILINE | re.DOTALL)
    return blocks + re.findall(r"`([^`\n]+)`", rest)


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][\w-]*):.*##", text("Makefile"), re.MULTILINE))


def console_scripts() -> list[str]:
    """Return the programs that setup.cfg installs."""
    setup = configparser.ConfigParser()
    setup.read_string(text("setup.cfg"))
    lines = setup["options.entry_points"]["console_scripts"].split("\n")
    return [line.partition("=")[0].strip() for line in lines if line.strip()]


def errors(base: type[ClimateError] = ClimateError) -> Iterator[type[ClimateError]]:
    """Yield every error class that a module of climate defines; tests define some, too."""
    for error in base.__subclasses__():
        if error.__module__.startswith("climate."):
            yield error
            yield from errors(error)


def routes() -> list[str]:
    """Return all routes as ``METHOD /path/<id>``."""
    return [f"{method} {path}" for method, path, *_ in (*app.OPEN, *app.ROUTES)]


def event_kinds() -> list[str]:
    names = ("BEFORE_START", "START", "UPDATE", "BEFORE_END", "END")
    return [getattr(schedule, name) for name in names]


class TestLists:
    """An empty list would make every test below pass."""

    def test_each_list_contains_a_known_entry(self) -> None:
        assert {"run", "test", "help"} <= make_targets()
        assert "climate-standalone" in console_scripts()
        assert "poll_interval" in {option.name for option in GROUPS["manager"]}
        assert "not_found" in {error.code for error in errors()}
        assert "GET /v1/leases/<lease_id>" in routes()
        assert set(schedule.ACTIONS) < set(event_kinds())

    def test_a_word_matches_only_as_a_whole(self) -> None:
        assert mentions("run `make test`.", "test")
        assert not mentions("run make test-sqlite", "test")

    def test_a_section_ends_at_the_next_heading_of_its_level(self) -> None:
        assert section("# a\n## `b`\none\n### c\ntwo\n## d\nthree", "b") == "one\n### c\ntwo"


def test_the_readme_names_only_existing_make_targets() -> None:
    named = set(re.findall(r"\bmake ((?!-)[a-z][a-z-]*)", " ".join(code_spans(text(README)))))
    assert named, "the README says how to run climate"
    assert named <= make_targets()


def test_every_program_is_documented() -> None:
    documents = text(README) + docs()
    assert [name for name in console_scripts() if not mentions(documents, name)] == []


def test_every_option_is_documented_in_the_section_of_its_group() -> None:
    missing = [
        f"[{group}] {option.name}"
        for group, options in GROUPS.items()
        for option in options
        if not mentions(section(text(CONFIGURATION), group), option.name)
    ]
    assert missing == []


def test_every_documented_option_exists() -> None:
    unknown = {}
    for group, options in GROUPS.items():
        rows = re.findall(r"^\| `(\w+)` \|", section(text(CONFIGURATION), group), re.MULTILINE)
        unknown[group] = set(rows) - {option.name for option in options}
    assert {group: names for group, names in unknown.items() if names} == {}


def test_every_error_code_has_an_entry_and_a_section() -> None:
    listed = {(code, entry.status) for code, entry in CODES.items()}
    assert listed == {(error.code, error.status) for error in (ClimateError, *errors())}
    assert text(ERRORS) == error_codes.document(), "write it: python -m tests.docs.error_codes"


def test_every_route_is_documented() -> None:
    missing = []
    for route in routes():
        page = text(API_2 if " /v2" in route else API)
        if not re.search(rf"{re.escape(route)}(?![\w/<-])", page):
            missing.append(route)
    assert missing == []


def test_examples_with_dates_work_before_these_dates(story: Story) -> None:
    story.clock.step(-3 * 366 * 86400)
    queries = re.findall(r"`GET (/v2/[^`]*\?[^`]*)`", text(API_2))
    assert len(queries) > 3
    for query in queries:
        if "..." not in query:
            assert story.call("GET", query).status_code == 200, query
    [search] = [block for block in code_spans(text(API_2)) if '"start_after"' in block]
    assert story.ok("POST", "/v2/availability/search", json.loads(search))["windows"]


def test_every_kind_of_event_is_documented() -> None:
    assert [kind for kind in event_kinds() if not mentions(docs(), kind)] == []


def test_every_type_of_notification_is_documented() -> None:
    kinds = {event_type.of_event(kind) for kind in event_kinds()}  # as lease.event.<event_type>
    types = set(event_type.KNOWN) - kinds
    assert [name for name in sorted(types) if not mentions(docs(), name)] == []


def test_every_threat_has_a_defence_and_a_test() -> None:
    rows = [line for line in section(text(THREATS), "Threats").splitlines() if line[:2] == "| "]
    threats = [row.split(" | ") for row in rows[1:] if not row.startswith("| **")]
    assert threats
    incomplete = [row for row in threats if len(row) != 3 or not row[1] or "::test_" not in row[2]]
    assert incomplete == []


def test_every_path_and_test_that_the_documentation_names_exists() -> None:
    documents = all_documents()
    documents.remove(ROOT / "CHANGELOG.md")  # names paths of the past
    named = {
        document.name: re.findall(r"`([a-z]\w*/[\w./-]+)(?:::([\w:]+))?`", document.read_text())
        for document in documents
    }
    assert all(named[name] for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "comparison.md"))
    missing = {name: [item for item in paths if not exists(*item)] for name, paths in named.items()}
    assert {name: paths for name, paths in missing.items() if paths} == {}


def exists(path: str, test: str) -> bool:
    """Return whether a path exists in the repository or below climate/, and defines the test."""
    if path.partition("/")[0] not in FOLDERS:
        return True  # a path of something else
    files = [file for file in (ROOT / path, ROOT / "climate" / path) if file.exists()]
    name = test.rpartition(":")[2]
    return bool(files) and (not name or f"def {name}(" in files[0].read_text(encoding="utf-8"))


def test_every_link_of_the_documentation_leads_somewhere() -> None:
    broken = {}
    for document in all_documents():
        links = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", document.read_text(encoding="utf-8"))
        here = [(document.parent / path if path else document, to) for path, to in links]
        broken[document.name] = [
            f"{path.name}#{to}"
            for path, to in here
            if ":" not in str(path) and not (path.exists() and (not to or to in anchors(path)))
        ]
    assert {name: links for name, links in broken.items() if links} == {}


def all_documents() -> list[Path]:
    return [*ROOT.glob("[A-Z]*.md"), *ROOT.glob("docs/**/*.md")]


def anchors(path: Path) -> set[str]:
    """Return the anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
