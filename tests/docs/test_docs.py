"""The documentation covers every command, option, error, route, event kind and notification.

The lists come from the code, so a new entry fails here until it is documented. Paths, tests and
links that the documentation names must exist. The tests read pages as Sphinx does, with the parts
that come from the code, but do not need Sphinx.
"""

import configparser
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
from climate.core.notifications.catalog import EVERYWHERE, MEMBERS, SHARED, TYPES
from climate.plugins.base import ResourcePlugin
from climate.plugins.hosts.plugin import HostCloud
from docs.extension.pages import expand
from tests.docs.blocks import blocks

ROOT = Path(__file__).parents[2]
README = "README.md"
API = "docs/reference/api-v1.md"
API_2 = "docs/reference/api-routes.md"
CONFIGURATION = "docs/reference/options.md"
ERRORS = "docs/reference/errors.md"
PLUGINS = "docs/reference/plugins.md"
THREATS = "docs/evidence/threat-model.md"
# Documents that name paths and tests.
EVIDENT = ("ARCHITECTURE.md", "CONTRIBUTING.md", "docs/evidence/comparison.md")
# The first folder of a path in the repository, or of one below climate/.
FOLDERS = {path.name for parent in (ROOT, ROOT / "climate") for path in parent.iterdir()}


@cache
def text(name: str) -> str:
    """Return the text of a document, "" if it does not exist."""
    path = ROOT / name
    return read(path) if path.exists() else ""


@cache
def read(path: Path) -> str:
    """Return the text of a document. That of a page of the site has its generated parts, too."""
    source = path.read_text(encoding="utf-8")
    docs_ = ROOT / "docs"
    return expand(str(path.relative_to(docs_)), source) if path.is_relative_to(docs_) else source


@cache
def docs() -> str:
    """Return the text of all documents below docs/."""
    return "\n".join(read(path) for path in sorted(ROOT.glob("docs/**/*.md")))


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


def test_every_option_is_documented_with_its_meaning() -> None:
    described = re.findall(
        r"^```\{confval\} (.*)\n(?::.*\n)+\n(\S.*)", text(CONFIGURATION), re.MULTILINE
    )
    documented = {name for name, meaning in described}
    every = {f"[{group}] {option.name}" for group in GROUPS for option in GROUPS[group]}
    assert every - documented == set()


def test_every_error_code_has_an_entry_and_a_section() -> None:
    listed = {(code, entry.status) for code, entry in CODES.items()}
    defined: list[type[ClimateError]] = [ClimateError, *errors()]
    assert listed == {(error.code, error.status) for error in defined}
    sections = re.findall(r"^## `(\w+)`\n\nStatus (\d{3}) ", text(ERRORS), re.MULTILINE)
    assert {(code, int(status)) for code, status in sections} == listed


def test_every_route_is_documented() -> None:
    missing = []
    for route in routes():
        page = text(API_2 if " /v2" in route else API)
        shown = re.sub(r"<(\w+)>", r"{\1}", route)
        if f"`{shown}`" not in page:
            missing.append(route)
    assert missing == []


def test_every_kind_of_event_is_documented() -> None:
    assert [kind for kind in event_kinds() if not mentions(docs(), kind)] == []


def test_the_catalog_has_every_type_of_notification_and_every_member() -> None:
    listed = {type_.name for type_ in TYPES if "KIND" not in type_.name}
    assert listed == set(event_type.KNOWN)
    shared = {member for members in SHARED.values() for member in members}
    own = {member for type_ in TYPES for member in type_.members}
    assert shared | own | set(EVERYWHERE) == set(MEMBERS)


def test_every_member_of_an_interface_is_described() -> None:
    rows = re.findall(r"^\| `(\w+)[^`]*` \| (.*) \|$", text(PLUGINS), re.MULTILINE)
    described = {name for name, contract in rows if contract}
    assert described >= {"heard_at", "title", *public(HostCloud), *public(ResourcePlugin)}


def public(interface: type) -> list[str]:
    return [name for name in dir(interface) if not name.startswith("_")]


def test_every_threat_has_a_defence_and_a_test() -> None:
    rows = [line for line in section(text(THREATS), "Threats").splitlines() if line[:2] == "| "]
    threats = [row.split(" | ") for row in rows[1:] if not row.startswith("| **")]
    assert threats
    incomplete = [row for row in threats if len(row) != 3 or not row[1] or "::test_" not in row[2]]
    assert incomplete == []


def test_every_path_and_test_that_the_documentation_names_exists() -> None:
    documents = all_documents()
    documents.remove(ROOT / "CHANGELOG.md")  # names paths of the past
    pattern = re.compile(r"`([a-z]\w*/[\w./-]+)(?:::([\w:]+))?`")
    named = {
        str(document.relative_to(ROOT)): pattern.findall(document.read_text(encoding="utf-8"))
        for document in documents
    }
    assert all(named[name] for name in EVIDENT)
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
        links = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", read(document))
        here = [(document.parent / path if path else document, to) for path, to in links]
        broken[str(document.relative_to(ROOT))] = [
            f"{path.name}#{to}"
            for path, to in here
            if ":" not in str(path) and not (path.exists() and (not to or to in anchors(path)))
        ]
    assert {name: links for name, links in broken.items() if links} == {}


def test_no_example_hides_that_the_service_does_not_answer() -> None:
    """With -s alone, curl prints nothing about a refused connection."""
    silent = re.compile(r"\bcurl (?:.* )?-(?=\w*s)(?!\w*S)\w+ ")
    assert silent.search("curl -sN x")
    assert not silent.search("curl -sSN x -s")
    hiding = [
        f"{document.relative_to(ROOT)}: {found[0]}"
        for document in all_documents()
        for found in silent.finditer(document.read_text(encoding="utf-8"))
    ]
    assert hiding == []


def test_examples_for_the_trial_service_send_nothing_to_a_public_host() -> None:
    reserved = re.compile(r"(?:127\.0\.0\.1|localhost|(?:.+\.)?example(?:\.org)?|.+\.invalid)")
    public = {
        f"{block.place}: {host}"
        for page in (ROOT / "docs/tutorial/index.md", *ROOT.glob("docs/user/*.md"))
        for block in blocks(page)
        if block.is_run
        for host in re.findall(r"https?://([\w.-]+)", block.text)
        if not reserved.fullmatch(host)
    }
    assert public == set()


def all_documents() -> list[Path]:
    return [*ROOT.glob("[A-Z]*.md"), *ROOT.glob("docs/**/*.md")]


def anchors(path: Path) -> set[str]:
    """Return the anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", read(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
