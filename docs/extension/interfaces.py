"""Tables of the members of an interface, such as ``climate.plugins.base:ResourcePlugin``.

A row is a method with its docstring, or an attribute with the comment ``#:`` above it.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from textwrap import dedent

from docs.extension.markdown import code, table


def markdown(name: str) -> str:
    """Return a table of the members of the class ``MODULE:CLASS`` and of its base classes."""
    module, _, title = name.partition(":")
    return table(["Member", "Contract"], members(getattr(import_module(module), title)))


def members(interface: type) -> Iterator[tuple[str, str]]:
    """Yield each public member as code, and its contract as Markdown."""
    for class_ in interface.__mro__:
        if class_.__module__.startswith("climate."):
            source = dedent(inspect.getsource(class_))
            for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
                yield from _member(node, source.splitlines())


def _member(node: ast.stmt, lines: list[str]) -> Iterator[tuple[str, str]]:
    match node:
        case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
            yield code(name), _markdown(_comment(lines, node.lineno - 1))
        case ast.FunctionDef(name=name) if not name.startswith("_"):
            yield code(_signature(node)), _markdown(ast.get_docstring(node) or "")


def _comment(lines: list[str], line: int) -> str:
    """Return the comment ``#:`` above a line, given by its index.

    A comment above several attributes is about all of them.
    """
    above = [text.strip() for text in lines[:line]]
    while above and ": ClassVar" in above[-1]:
        above.pop()
    first = len(above)
    while first and above[first - 1].startswith("#:"):
        first -= 1
    return " ".join(text.removeprefix("#:") for text in above[first:])


def _signature(node: ast.FunctionDef) -> str:
    """Return the name of a method with its parameters, as a caller writes it."""
    if any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list):
        return node.name
    arguments = [*node.args.args[1:], *node.args.kwonlyargs]
    return f"{node.name}({', '.join(each.arg.lstrip('_') for each in arguments)})"


def _markdown(text: str) -> str:
    return re.sub(r"``_?([^`]+)``", r"`\1`", text)
