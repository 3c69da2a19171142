"""The receiver of webhooks."""

from collections.abc import Iterator

import pytest

from tests.support.receiver import Receiver, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made
