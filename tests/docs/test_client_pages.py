"""The code blocks of the pages about the client run as they stand, on a new service each."""

from pathlib import Path

import pytest

from tests.docs.blocks import blocks, of_client, run
from tests.support.process import standalone

DOCS = Path(__file__).parents[2] / "docs"

pytestmark = pytest.mark.system


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["command-line.md", "python-client.md"])
def test_the_blocks_of_a_page_run(name: str, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    with standalone(tmp_path) as (service, _):
        run(of_client(blocks(DOCS / name), None), service.url, tmp_path / "home")
