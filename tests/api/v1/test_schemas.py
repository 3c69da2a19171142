"""Dates in requests of API v1."""

from datetime import UTC, datetime

import pytest

from climate.api.v1.schemas import FORMAT, Date
from climate.core.errors import InvalidDate


@pytest.mark.parametrize("text", ["2030-01-05 09:07", "2030-1-5 9:7", "2028-02-29 23:59"])
def test_a_date_may_lack_leading_zeros(text: str) -> None:
    assert Date().deserialize(text) == datetime.strptime(text, FORMAT).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "2030-02-29 09:00",
        "2030-01-05 24:00",
        "2030-01-05T09:00",
        "2030-01-05 09:00:00",
    ],
)
def test_other_dates_are_invalid(text: str) -> None:
    with pytest.raises(InvalidDate):
        Date().deserialize(text)
