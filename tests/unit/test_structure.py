"""The rules of ARCHITECTURE.md on imports, and the limits on the size of files and functions.

The tests parse the source, so they see imports wherever they stand in a file.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import climate

ROOT = Path(climate.__file__).parent
MIGRATIONS = "climate.db.migrations.versions."

LONGEST_FILE = 450
LONGEST_FUNCTION = 40
MOST_ENTRIES = 12

# The entries (modules and folders) of a folder, lowest layer first. An entry may import entries
# of lower layers, and none of its own or of a higher layer.
LAYERS: Mapping[str, tuple[frozenset[str], ...]] = {
    "climate": (
        frozenset({"core", "provisioner", "client"}),
        frozenset({"clock"}),
        frozenset({"config"}),
        frozenset({"observability"}),
        frozenset({"db", "plugins", "notifications"}),
        frozenset({"manager"}),
        frozenset({"api"}),
        frozenset({"cmd"}),
    ),
    "climate.manager": (
        frozenset({"enforcement"}),
        frozenset({"process"}),
        frozenset({"claims"}),
        frozenset({"admission", "notifications"}),
        frozenset({"leases"}),
        frozenset({"provisioning", "offers", "wait_list"}),
        frozenset({"resources", "events", "audit"}),
    ),
    "climate.plugins": (
        frozenset({"request_fields"}),
        frozenset({"base", "fencing", "filters"}),
        frozenset({"loader", "simulated_journal"}),
        frozenset({"openstack"}),
        frozenset({"hosts"}),
        frozenset({"instances", "networking"}),
        frozenset({"volumes"}),
        frozenset({"stacks"}),
    ),
    "climate.client": (
        frozenset({"errors", "models"}),
        frozenset({"transport"}),
        frozenset({"connection", "reservations", "waiting"}),
        frozenset({"leases", "operations", "resources", "notifications"}),
        frozenset({"client"}),
        frozenset({"commands"}),
    ),
    "climate.client.commands": (
        frozenset({"options"}),
        frozenset({"display"}),
        frozenset({"base"}),
        frozenset({"notifications", "operations", "resources", "subscriptions"}),
        frozenset({"capacity", "leases"}),
        frozenset({"app", "osc"}),
    ),
}
# The only modules that may import a package or a name.
RESERVED: Mapping[str, tuple[str, ...]] = {
    "oslo_messaging": ("climate.notifications",),
    "apscheduler": ("climate.manager.process.timer",),
    # The second is Nova's own configuration, which its filters read.
    "oslo_config.cfg.CONF": ("climate.config", "climate.plugins.filters.nova_objects"),
    "climate.clock.SystemClock": ("climate.cmd.status.checks",),
    "climate.cmd.bootstrap": ("climate.cmd",),
    "climate.client": (),
    "cliff": ("climate.client.commands",),
    "tests": (),
}
# Modules that read the machine's wall clock, and why. All others receive a clock.
WALL_CLOCK = {
    "climate.clock": "is the one source of time",
    "climate.db.engine.clock": "uses the machine's time as SQLite's",
    "climate.db.engine.ids": "creates ids that begin with a time, which no code reads back",
    "climate.manager.process.timer": "detects that the wall clock was set",
    "climate.provisioner.prepare": "is another process, and compares with times from the cloud",
    "climate.client.commands.options.times": "is another program, and people write 'in 2h'",
    "climate.cmd.status.checks": "compares the clocks of machine and database",
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
    """Return the source of every module of climate by its dotted name."""
    texts = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = ("climate", *path.relative_to(ROOT).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        texts[name] = path.read_text(encoding="utf-8")
    return texts


@cache
def modules() -> dict[str, ast.Module]:
    """Return the syntax tree of every module."""
    return {name: ast.parse(source, name) for name, source in sources().items()}


def imports(tree: ast.AST) -> set[str]:
    """Return all imported names, dotted: ``from a import b`` is ``a.b``, be it a module or not."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute) and node.attr == "CONF":
            names.add("oslo_config.cfg.CONF")
    return names


@cache
def imports_of(module: str) -> frozenset[str]:
    """Return all names that a module of climate imports."""
    return frozenset(imports(modules()[module]))


@cache
def imported_modules(module: str) -> set[str]:
    """Return the modules of climate that a module imports, itself excluded."""
    names = imports_of(module)
    candidates = (wanted for name in names for wanted in (name, name.rpartition(".")[0]))
    exact = {name for name in names if name in modules()}
    parents = {name.rpartition(".")[0] for name in names - exact}
    return {name for name in candidates if name in exact | parents & set(modules())} - {module}


def attributes(tree: ast.AST) -> set[str]:
    """Return attributes with the last word of their owner: ``datetime.now`` is one."""
    return {
        f"{getattr(node.value, 'attr', None) or getattr(node.value, 'id', '')}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
    }


def is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def functions(tree: ast.AST, owner: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield all functions and methods with their dotted names, inner ones included."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = f"{owner}.{node.name}"
            if isinstance(node, ast.FunctionDef):
                yield name, node
            yield from functions(node, name)
        elif isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            yield from functions(node, owner)


@cache
def interface_methods() -> frozenset[str]:
    """Return the names of the documented methods of ResourcePlugin and of drivers' Protocols."""
    classes = [
        node
        for module, tree in modules().items()
        if is_in(module, "climate.plugins")
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and (node.name == "ResourcePlugin" or "Protocol" in map(ast.unparse, node.bases))
    ]
    return frozenset(
        method.name
        for owner in classes
        for method in owner.body
        if isinstance(method, ast.FunctionDef) and ast.get_docstring(method)
    )


def public(tree: ast.Module, module: str) -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    """Yield the public classes and functions of a module, and the public methods of the former."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield f"{module}.{node.name}", node
            for inner in node.body if isinstance(node, ast.ClassDef) else []:
                if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
                    yield f"{module}.{node.name}.{inner.name}", inner


def entries() -> dict[str, set[str]]:
    """Return the modules and folders that each folder of climate has, migrations left out."""
    content: dict[str, set[str]] = defaultdict(set)
    for module in modules():
        folder, _, entry = module.rpartition(".")
        if folder and not is_in(f"{folder}.", MIGRATIONS):
            content[folder].add(entry)
    return content


@cache
def arrows() -> dict[str, dict[tuple[str, str], set[str]]]:
    """Return, by folder, which of its entries imports which other, with the modules concerned."""
    found: dict[str, dict[tuple[str, str], set[str]]] = defaultdict(lambda: defaultdict(set))
    for module in modules():
        for imported in imported_modules(module):
            source, target = module.split("."), imported.split(".")
            depth = next(
                (i for i, (a, b) in enumerate(zip(source, target, strict=False)) if a != b), None
            )
            if depth is not None:
                pair = source[depth], target[depth]
                found[".".join(source[:depth])][pair].add(f"{module} -> {imported}")
    return found


def cycle(pairs: set[tuple[str, str]]) -> set[str]:
    """Return the entries that are part of, or lead to, a cycle."""
    targets: dict[str, set[str]] = defaultdict(set)
    for source, target in pairs:
        targets[source].add(target)
    while leaves := {source for source, aims in targets.items() if not aims & set(targets)}:
        targets = defaultdict(set, {s: a for s, a in targets.items() if s not in leaves})
    return set(targets)


class TestReader:
    """The rules below depend on what these functions see."""

    def test_sees_imports_wherever_they_stand(self) -> None:
        samples = {
            "import a.b": "a.b",
            "from a import b": "a.b",
            "from a.b import c as d": "a.b.c",
            "def f():\n    import a": "a",
            "if TYPE_CHECKING:\n    from a import b": "a.b",
            "from oslo_config.cfg import CONF": "oslo_config.cfg.CONF",
            "from oslo_config import cfg\ncfg.CONF.host": "oslo_config.cfg.CONF",
            "import oslo_config.cfg as c\nf(c.CONF)": "oslo_config.cfg.CONF",
        }
        assert [s for s, seen in samples.items() if seen not in imports(ast.parse(s))] == []

    def test_sees_attributes_with_their_owner(self) -> None:
        samples = ["datetime.now(UTC)", "dt.datetime.now()", "a().datetime.now"]
        assert all("datetime.now" in attributes(ast.parse(source)) for source in samples)

    def test_finds_inner_functions_and_methods(self) -> None:
        source = "class A:\n  def b(self):\n    def c(): ...\nif x:\n  def d(): ..."
        names = [name for name, _ in functions(ast.parse(source), "m")]
        assert names == ["m.A.b", "m.A.b.c", "m.d"]

    def test_finds_cycles(self) -> None:
        assert cycle({("a", "b"), ("b", "c")}) == set()
        assert cycle({("a", "b"), ("b", "c"), ("c", "b")}) == {"a", "b", "c"}

    def test_visits_every_folder(self) -> None:
        assert entries()["climate"] >= {"core", "db", "api", "manager", "plugins", "notifications"}
        assert arrows()["climate"][("api", "manager")]


class TestImports:
    def test_core_imports_only_the_standard_library_and_itself(self) -> None:
        foreign = {
            f"{module} -> {name}"
            for module in modules()
            if is_in(module, "climate.core")
            for name in imports_of(module)
            if not is_in(name, "climate.core") and name.split(".")[0] not in sys.stdlib_module_names
        }
        assert foreign == set()

    def test_api_uses_no_statements_of_the_database(self) -> None:
        statements = {
            f"{module} -> {name}"
            for module in modules()
            if is_in(module, "climate.api")
            for name in imported_modules(module)
            if is_in(name, "climate.db") and not is_in(name, "climate.db.engine")
        }
        assert statements == set()

    def test_entries_of_a_folder_import_each_other_without_cycles(self) -> None:
        cycles = {folder: cycle(set(pairs)) for folder, pairs in arrows().items()}
        assert {folder: names for folder, names in cycles.items() if names} == {}

    def test_imports_point_to_lower_layers(self) -> None:
        upward = {
            why
            for folder, layers in LAYERS.items()
            for level, layer in enumerate(layers)
            for (source, target), whys in arrows()[folder].items()
            if source in layer and not any(target in lower for lower in layers[:level])
            for why in whys
        }
        assert upward == set()

    def test_every_entry_has_a_layer(self) -> None:
        missing = {
            f"{folder}.{entry}"
            for folder, layers in LAYERS.items()
            for entry in entries()[folder].symmetric_difference(frozenset().union(*layers))
        }
        assert missing == set()

    def test_reserved_packages_are_imported_only_where_allowed(self) -> None:
        others = {
            f"{module} -> {what}"
            for what, places in RESERVED.items()
            for module in modules()
            if any(is_in(name, what) for name in imports_of(module))
            and not any(is_in(module, place) for place in (*places, what))
        }
        assert others == set()

    def test_only_listed_modules_read_the_wall_clock(self) -> None:
        readers = {
            module
            for module, tree in modules().items()
            if WALL_CLOCKS & (attributes(tree) | imports_of(module))
        }
        assert readers == set(WALL_CLOCK)


class TestSizes:
    def test_folders_have_few_entries(self) -> None:
        large = {folder: len(names) for folder, names in entries().items()}
        assert {folder: n for folder, n in large.items() if n > MOST_ENTRIES} == {}

    def test_files_are_short(self) -> None:
        long = {
            module: len(source.splitlines())
            for module, source in sources().items()
            if not module.startswith(MIGRATIONS) and len(source.splitlines()) > LONGEST_FILE
        }
        assert long == {}

    def test_functions_are_short(self) -> None:
        long = {
            name
            for module, tree in modules().items()
            if not module.startswith(MIGRATIONS)
            for name, node in functions(tree, module)
            if (node.end_lineno or 0) - node.lineno + 1 > LONGEST_FUNCTION
        }
        assert long == set()

    def test_no_function_is_asynchronous_and_so_escapes_these_rules(self) -> None:
        asynchronous = {module for module, source in sources().items() if "async def" in source}
        assert asynchronous == set()

    def test_no_module_has_a_vague_name(self) -> None:
        assert {name for name in modules() if set(name.split(".")) & VAGUE} == set()


class TestDocstrings:
    def test_every_module_has_one(self) -> None:
        silent = {
            module
            for module, tree in modules().items()
            if tree.body and ast.get_docstring(tree) is None
        }
        assert silent == set()

    def test_every_folder_says_what_it_contains(self) -> None:
        silent = {
            folder
            for folder in entries()
            if folder != "climate" and ast.get_docstring(modules()[folder]) is None
        }
        assert silent == set()

    def test_everything_public_has_one(self) -> None:
        """An interface documents the methods of plug-ins and drivers."""
        silent = {
            name
            for module, tree in modules().items()
            if not module.startswith(MIGRATIONS)
            for name, node in public(tree, module)
            if ast.get_docstring(node) is None
            and not (is_in(module, "climate.plugins") and node.name in interface_methods())
        }
        assert silent == set()
