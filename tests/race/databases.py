"""The databases of the race tests."""

import pytest

# The code of the race is the same everywhere: one server shows it.
OTHERS = pytest.mark.nightly(reason="the race runs on PostgreSQL; others use the same code")
PROOF = pytest.mark.nightly(reason="proves with many processes that a removed guard is missed")
SEARCH = pytest.mark.nightly(reason="searches at random for minutes")

postgresql_first = pytest.mark.parametrize(
    "backend",
    [
        "postgresql",
        pytest.param("sqlite", marks=OTHERS),
        pytest.param("mariadb", marks=OTHERS),
    ],
    indirect=True,
)
