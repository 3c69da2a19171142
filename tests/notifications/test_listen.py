"""Listeners retry while the service does not answer, or the broker refuses."""

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from climate.notifications.listen import BackgroundListener, Refused, from_http
from tests.support.answers import answering


def page(seq: int) -> tuple[int, Any]:
    return 200, {"notifications": [{"seq": seq}], "after": seq}


def test_each_failure_is_one_line_and_the_pause_grows_until_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    down: tuple[int, Any] = (503, {})
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


def test_a_broker_that_refuses_is_tried_again_until_the_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusals = [PermissionError("no such user"), PermissionError("no such virtual host")]
    is_listening, has_ended = threading.Event(), threading.Event()

    @contextmanager
    def listen() -> Iterator[None]:
        if refusals:
            raise refusals.pop(0)
        is_listening.set()
        yield
        has_ended.set()

    listener = BackgroundListener(listen, pause=0.001)
    listener.start()
    assert is_listening.wait(30)
    listener.stop()
    assert has_ended.wait(30)
    reasons = [record.getMessage().rpartition(": ")[2] for record in caplog.records]
    assert reasons == ["no such user", "no such virtual host"]
