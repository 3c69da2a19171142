"""The MyST source of each page: what its file says, and what comes from elsewhere.

Three things in the files are not plain MyST:

- A line ``<!-- generated: NAME -->`` stands for Markdown that a module of this package makes from
  the code. The name may have an argument, such as ``params physical:host``.
- A line ``<!-- file: NAME.md -->`` stands for a document in the root of the repository.
- Links to those documents, such as ``../../CONTRIBUTING.md``, lead to their pages on the site. So
  each link works on the site and in the repository.
"""

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

from docs.extension import (
    client,
    errors,
    interfaces,
    metrics,
    notifications,
    options,
    policies,
    programs,
    routes,
)

ROOT = Path(__file__).parents[2]
# The pages of the documents in the root of the repository, relative to docs/.
PAGES = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "README.md": "index.md",
}
GENERATED: dict[str, Callable[..., str]] = {
    "alerts": metrics.alerts_markdown,
    "client": client.markdown,
    "errors": errors.markdown,
    "interface": interfaces.markdown,
    "metrics": metrics.markdown,
    "notifications": notifications.markdown,
    "options": options.markdown,
    "params": routes.params_markdown,
    "policies": policies.markdown,
    "objects": routes.objects_markdown,
    "programs": programs.markdown,
    "routes-v1": routes.v1_markdown,
    "routes-v2": routes.v2_markdown,
}
_DIRECTIVE = re.compile(r"^<!-- (generated|file): ([\w.: -]+) -->$", re.MULTILINE)
_LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")


def expand(page: str, text: str) -> str:
    """Return the MyST source of a page; ``page`` is its path relative to docs/."""

    def replaced(match: re.Match[str]) -> str:
        kind, name = match.groups()
        if kind == "generated":
            part, _, argument = name.partition(" ")
            return GENERATED[part](*filter(None, [argument]))
        return with_links((ROOT / name).read_text(encoding="utf-8"), "", page)

    return _DIRECTIVE.sub(replaced, with_links(text, f"docs/{page}", page))


def with_links(text: str, source: str, page: str) -> str:
    """Return ``text`` with its relative links as they must be on ``page``.

    ``source`` is the path of the file that contains the text, relative to the root of the
    repository.
    """
    folder = PurePosixPath(source).parent
    here = PurePosixPath("docs", page).parent

    def replaced(match: re.Match[str]) -> str:
        before, path, after = match.groups()
        target = normpath(folder / path)
        target = f"docs/{PAGES[target]}" if target in PAGES else target
        return before + relpath(target, here) + after

    return _LINK.sub(replaced, text)
