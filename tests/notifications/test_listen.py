"""A listener over HTTP retries while the service does not answer."""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from climate.notifications.listen import Refused, from_http


@contextmanager
def answering(*answers: tuple[int, Any]) -> Iterator[str]:
    """Run a service that gives these answers (status and JSON), one per request; yield its URL."""
    remaining = iter(answers)

    class Conversation(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = next(remaining)
            data = json.dumps(body).encode()
            self.send_response(status, "as the test says")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_arguments: object) -> None:
            """Write nothing to standard error."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Conversation) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


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
    with caplog.filtering(note_error), answering(*answers) as url:  # type: ignore[arg-type]
        notifications = from_http(url, "token", pause=0.001)
        assert [next(notifications)["seq"] for _ in range(2)] == [1, 2]
        with pytest.raises(Refused, match="410"):
            next(notifications)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(":")[0] for line in lines] == [
        "retrying in 0.001 s",
        "retrying in 0.002 s",
        "retrying in 0.001 s",
    ]
    assert all(line.count("as the test says") == 1 for line in lines)
    assert errors == [None] * 3
