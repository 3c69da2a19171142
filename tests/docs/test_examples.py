"""The code blocks of the tutorial and the user guide run as they stand, on a new service each."""

from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks, clients, of_client, run
from tests.support.process import standalone

DOCS = Path(__file__).parents[2] / "docs"
INDEX = DOCS / "user" / "index.md"
PAGES = [DOCS / "tutorial" / "index.md", *sorted((DOCS / "user").glob("*.md"))]
RUNS = [
    (page, client) for page in PAGES for client in clients(page) if of_client(blocks(page), client)
]

pytestmark = pytest.mark.docs


def preamble(page: Path, client: str | None) -> list[Block]:
    """Return the blocks that prepare a shell or a program; the tutorial has its own."""
    return of_client(blocks(INDEX), client) if page.parent == INDEX.parent != page else []


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("page", "client"), RUNS, ids=[f"{page.parent.name}-{page.stem}-{who}" for page, who in RUNS]
)
def test_the_blocks_of_a_page_run(page: Path, client: str | None, tmp_path: Path) -> None:
    chosen = of_client(blocks(page), client)
    (tmp_path / "home").mkdir()
    with standalone(tmp_path) as (service, _):
        run([*preamble(page, client), *chosen], service.url, tmp_path / "home")


def test_a_page_shows_each_task_for_the_same_clients() -> None:
    """A client that has no tab on a page would silently not be tested."""
    tabs = {
        page.stem: {block.client for block in blocks(page)} - {None}
        for page in PAGES
        if any(block.client for block in blocks(page))
    }
    assert {name: who for name, who in tabs.items() if not {"curl", "python"} <= who} == {}
