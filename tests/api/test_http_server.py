"""The end of serving: the sockets are closed while a thread may be about to wait for them."""

import threading
from types import SimpleNamespace

import pytest

from climate import serving


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what threads fail with."""
    found: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda one: found.append(str(one.exc_value)))
    return found


def serve(failure: Exception, *, is_the_end: bool) -> None:
    """Have a server fail, after it was asked to stop or before that."""
    stopping = threading.Event()
    if is_the_end:
        stopping.set()

    def run() -> None:
        raise failure

    http = threading.Thread(target=serving._run, args=(SimpleNamespace(run=run), stopping))
    http.start()
    http.join()


@pytest.mark.parametrize(
    "failure", [OSError(9, "bad file descriptor"), ValueError("file descriptor is negative")]
)
def test_that_the_sockets_are_closed_at_the_end_is_no_failure(
    failures: list[str], failure: Exception
) -> None:
    serve(failure, is_the_end=True)
    assert failures == []
    serve(failure, is_the_end=False)
    assert failures == [str(failure)]
