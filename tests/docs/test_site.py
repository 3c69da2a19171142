"""The built site (``make docs``) loads nothing from other hosts."""

import re
from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "build" / "docs" / "html"
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["'](?:https?:)?//"""
    r"""|<link\b[^>]*\bhref=["'](?:https?:)?//|@import\s+["'](?:https?:)?//|url\(["']?(?:https?:)?//"""
)

pytestmark = pytest.mark.docs


def test_no_page_and_no_style_sheet_loads_a_file_from_another_host() -> None:
    files = [path for path in SITE.rglob("*") if path.suffix in {".html", ".css"}]
    assert files, "make test-docs builds the site first"
    loading = {
        str(path.relative_to(SITE)): found[0]
        for path in files
        if (found := _LOADED.search(path.read_text(encoding="utf-8")))
    }
    assert loading == {}
