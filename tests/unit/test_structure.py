"""Who may know whom, and how large things may grow: the rules that ARCHITECTURE.md states.

Imports are read from the source, wherever in a file they stand.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import climate

ROOT = Path(climate.__file__).parent
MIGRATIONS = "climate.db.migrations.versions."

LONGEST_FILE = 450
LONGEST_FUNCTION = 40
# What is longer, and why.
LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}

# What no module of a package may import.
FORBIDDEN = {
    "climate.db": ["climate.api", "climate.manager", "climate.plugins", "climate.notifications"],
    "climate.plugins": ["climate.db", "climate.api", "climate.manager", "climate.notifications"],
    "climate.notifications": ["climate.db", "climate.api", "climate.manager", "climate.plugins"],
    "climate.manager": ["climate.api", "climate.notifications"],
    "climate.provisioning": [
        *(f"climate.{name}" for name in ("api", "db", "manager", "notifications", "plugins")),
        "climate.core",
    ],
    "climate.api": [
        "climate.notifications",
        *(f"climate.db.{noun}" for noun in ("allocations", "events", "leases", "outbox")),
        *(f"climate.db.{noun}" for noun in ("property_filter", "resources", "tables")),
        *(f"climate.db.{noun}" for noun in ("idempotency", "listing")),
        *(f"climate.db.{noun}" for noun in ("preparation_tables", "preparations", "readiness")),
        "climate.db.shutdowns",
    ],
}
# What only these may import.
RESERVED = {
    "oslo_messaging": "climate.notifications",
    "apscheduler": "climate.manager.timer",
    "oslo_config.cfg.CONF": "climate.config",
    "climate.clock.SystemClock": "climate.status",
    "climate.service": ["climate.cli", "climate.simulation", "climate.status", "climate.wsgi"],
    "climate.cli": [],
    "climate.wsgi": [],
    "tests": [],
}
# Who reads the machine's wall clock, and why: all others are given a clock.
WALL_CLOCK = {
    "climate.clock": "is the one source of time",
    "climate.db.clock": "takes the machine's time for SQLite's",
    "climate.ids": "makes ids that begin with their time, by which nobody tells the time",
    "climate.manager.timer": "notices that the scheduler's wall clock was set",
    "climate.provisioning.preparing": "is another process, and compares with what a cloud says",
    "climate.status": "tells how far the machine's clock is from the database's",
}
WALL_CLOCKS = {
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "time.time",
    "time.time_ns",
    "time.localtime",
    "time.gmtime",
}
VAGUE = {"utils", "util", "common", "helpers", "helper", "misc"}


@cache
def sources() -> dict[str, str]:
    """Every module of climate by its dotted name."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = ("climate", *path.relative_to(ROOT).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path.read_text(encoding="utf-8")
    return found


@cache
def modules() -> dict[str, ast.Module]:
    """The same, parsed."""
    return {name: ast.parse(source, name) for name, source in sources().items()}


def imports(tree: ast.AST) -> set[str]:
    """All that is imported, dotted; ``from a import b`` is ``a.b``, be it a module or not."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute) and node.attr == "CONF":
            found.add("oslo_config.cfg.CONF")
    return found


def attributes(tree: ast.AST) -> set[str]:
    """What is taken from something, with the last word of that: ``datetime.now`` is one."""
    return {
        f"{ast.unparse(node.value).rpartition('.')[2]}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
    }


def is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def functions(tree: ast.AST, owner: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """All functions and methods with their dotted names, inner ones included."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = f"{owner}.{node.name}"
            if isinstance(node, ast.FunctionDef):
                yield name, node
            yield from functions(node, name)
        elif not isinstance(node, ast.AsyncFunctionDef):
            yield from functions(node, owner)


def all_functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    for module, tree in modules().items():
        yield from functions(tree, module)


def public(tree: ast.Module, module: str) -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    """What others may use: public classes and functions, and the public methods of the former."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield f"{module}.{node.name}", node
            for inner in node.body if isinstance(node, ast.ClassDef) else []:
                if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
                    yield f"{module}.{node.name}.{inner.name}", inner


class TestTheWalk:
    """The rules below are worth what it sees."""

    def test_it_visits_every_package(self) -> None:
        packages = {name.split(".")[1] for name in modules() if "." in name}
        assert packages >= {"core", "db", "api", "manager", "plugins", "notifications"}
        assert len(modules()) > 40

    @pytest.mark.parametrize(
        ("source", "seen"),
        [
            ("import a.b", "a.b"),
            ("from a import b", "a.b"),
            ("from a.b import c as d", "a.b.c"),
            ("def f():\n    import a", "a"),
            ("if TYPE_CHECKING:\n    from a import b", "a.b"),
            ("from oslo_config.cfg import CONF", "oslo_config.cfg.CONF"),
            ("from oslo_config import cfg\ncfg.CONF.host", "oslo_config.cfg.CONF"),
            ("import oslo_config.cfg as c\nf(c.CONF)", "oslo_config.cfg.CONF"),
        ],
    )
    def test_it_sees_imports_wherever_they_stand(self, source: str, seen: str) -> None:
        assert seen in imports(ast.parse(source))

    @pytest.mark.parametrize(
        "source", ["datetime.now(UTC)", "dt.datetime.now()", "a().datetime.now"]
    )
    def test_it_sees_what_is_taken_from_what(self, source: str) -> None:
        assert "datetime.now" in attributes(ast.parse(source))

    def test_it_finds_inner_functions_and_methods(self) -> None:
        source = "class A:\n  def b(self):\n    def c(): ...\nif x:\n  def d(): ..."
        assert [name for name, _ in functions(ast.parse(source), "m")] == [
            "m.A.b",
            "m.A.b.c",
            "m.d",
        ]

    def test_a_name_is_in_a_package_only_as_a_whole(self) -> None:
        assert is_in("climate.db.leases", "climate.db")
        assert not is_in("climate.dbx", "climate.db")


class TestDependencies:
    def test_the_core_knows_the_standard_library_and_itself_only(self) -> None:
        foreign = {
            f"{module} -> {name}"
            for module, tree in modules().items()
            if is_in(module, "climate.core")
            for name in imports(tree)
            if not is_in(name, "climate.core") and name.split(".")[0] not in sys.stdlib_module_names
        }
        assert foreign == set()

    @pytest.mark.parametrize("package", FORBIDDEN)
    def test_dependencies_point_inwards(self, package: str) -> None:
        outwards = {
            f"{module} -> {name}"
            for module, tree in modules().items()
            if is_in(module, package)
            for name in imports(tree)
            if any(is_in(name, other) for other in FORBIDDEN[package])
        }
        assert outwards == set()

    @pytest.mark.parametrize("what", RESERVED)
    def test_only_one_place_knows(self, what: str) -> None:
        allowed = RESERVED[what]
        places = [allowed] if isinstance(allowed, str) else allowed
        others = {
            module
            for module, tree in modules().items()
            if any(is_in(name, what) for name in imports(tree))
            and not any(is_in(module, place) for place in places)
        }
        assert others == set()

    def test_only_few_read_the_clock_on_the_wall(self) -> None:
        reading = {
            module
            for module, tree in modules().items()
            if WALL_CLOCKS & (attributes(tree) | imports(tree))
        }
        assert reading == set(WALL_CLOCK)

    def test_no_two_modules_need_each_other(self) -> None:
        known = set(modules())
        needs = {
            module: {
                wanted
                for name in imports(tree)
                for wanted in (name, name.rpartition(".")[0])
                if wanted in known and wanted != module
            }
            for module, tree in modules().items()
        }
        while leaves := {module for module, wanted in needs.items() if not wanted & set(needs)}:
            needs = {module: wanted for module, wanted in needs.items() if module not in leaves}
        assert needs == {}


class TestBudgets:
    def test_no_file_is_longer_than_can_be_read_in_one_go(self) -> None:
        long = {
            module
            for module, source in sources().items()
            if not module.startswith(MIGRATIONS) and len(source.splitlines()) > LONGEST_FILE
        }
        assert long == set(LONG_FILES)

    def test_no_function_is_longer_than_a_screen(self) -> None:
        long = {
            name
            for name, node in all_functions()
            if not name.startswith(MIGRATIONS)
            and (node.end_lineno or 0) - node.lineno + 1 > LONGEST_FUNCTION
        }
        assert long == set(LONG_FUNCTIONS)

    def test_nothing_is_asynchronous_and_so_escapes_the_walk(self) -> None:
        found = {
            module
            for module, tree in modules().items()
            if any(isinstance(node, ast.AsyncFunctionDef) for node in ast.walk(tree))
        }
        assert found == set()

    def test_no_module_has_a_name_for_anything(self) -> None:
        assert {name for name in modules() if set(name.split(".")) & VAGUE} == set()


class TestDocstrings:
    def test_every_module_says_which_rule_it_protects(self) -> None:
        silent = {
            module
            for module, tree in modules().items()
            if tree.body and ast.get_docstring(tree) is None
        }
        assert silent == set()

    def test_everything_public_says_what_it_is_for(self) -> None:
        silent = {
            name
            for module, tree in modules().items()
            if not module.startswith(MIGRATIONS)
            for name, node in public(tree, module)
            if ast.get_docstring(node) is None
        }
        assert silent == set()
