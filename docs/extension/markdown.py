"""Small pieces of Markdown that the generators share."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Cells are Markdown; line breaks in them become spaces."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(text) for text in line)} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", r"\|").split())


def code(value: object) -> str:
    """Return a value as a span of code; an empty value is shown as ``""``."""
    text = str(value) or '""'
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def section(level: int, title: str, *parts: str) -> str:
    """Return a section: a heading and its parts, which are separated by empty lines."""
    return "\n\n".join([f"{'#' * level} {title}", *(part for part in parts if part)]) + "\n"
