"""Names of receivers are resolved within the deadline of a delivery."""

import pytest

from climate.notifications.deadline import resolve
from tests.support.hanging_resolver import hanging_resolver


def test_resolves_a_name_and_passes_errors_of_the_resolver_on() -> None:
    assert ("127.0.0.1", 25) in [address for *_, address in resolve("127.0.0.1", 25, 5)]
    with pytest.raises(UnicodeError):
        resolve("no..such..name", 25, 5)


def test_a_resolver_that_hangs_ends_at_the_deadline() -> None:
    with hanging_resolver(), pytest.raises(TimeoutError, match="was not resolved in time"):
        resolve("hook.example", 443, 0.01)
