"""The server stops while a thread may be about to wait for a socket."""

import threading
from types import SimpleNamespace

import pytest

from climate.api.server import http_server


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    errors: list[str] = []
    monkeypatch.setattr(
        threading, "excepthook", lambda arguments: errors.append(str(arguments.exc_value))
    )
    return errors


def serve(failure: Exception, *, is_stopping: bool) -> None:
    """Let a server fail, with or without a preceding request to stop."""
    stopping = threading.Event()
    if is_stopping:
        stopping.set()

    def run() -> None:
        raise failure

    http = threading.Thread(target=http_server._run, args=(SimpleNamespace(run=run), stopping))
    http.start()
    http.join()


@pytest.mark.parametrize(
    "failure", [OSError(9, "bad file descriptor"), ValueError("file descriptor is negative")]
)
def test_a_closed_socket_is_an_error_only_while_serving(
    failures: list[str], failure: Exception
) -> None:
    serve(failure, is_stopping=True)
    assert failures == []
    serve(failure, is_stopping=False)
    assert failures == [str(failure)]
