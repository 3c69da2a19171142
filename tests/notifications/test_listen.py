"""A listener over HTTP retries while the service does not answer."""

import logging
import sys
from typing import Any

import pytest

from climate.notifications.listen import Refused, from_http
from tests.support.answers import answering


def page(seq: int) -> tuple[int, Any]:
    return 200, {"notifications": [{"seq": seq}], "after": seq}


def test_each_failure_is_one_line_and_the_pause_grows_until_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    down = (503, {})
    errors: list[BaseException | None] = []

    def note_error(_record: logging.LogRecord) -> bool:
        """Note the error that oslo.log would append to the line."""
        errors.append(sys.exception())
        return True

    answers = [down, (429, {}), page(1), down, page(2), (410, {})]
    with caplog.filtering(note_error), answering(*answers) as service:  # type: ignore[arg-type]
        notifications = from_http(service.url, "token", pause=0.001)
        assert [next(notifications)["seq"] for _ in range(2)] == [1, 2]
        with pytest.raises(Refused, match="410"):
            next(notifications)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(": retrying in ")[2] for line in lines] == [
        "0.001 s",
        "0.002 s",
        "0.001 s",
    ]
    assert all(line.count("as the test says") == 1 for line in lines)
    assert errors == [None] * 3
