"""A resolver of host names that does not answer during a test."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def hanging_resolver() -> Iterator[None]:
    """Have look-ups of names hang until the block ends, and then fail."""
    is_over = threading.Event()

    def look_up(*_arguments: Any, **_options: Any) -> Any:
        is_over.wait(10)
        raise socket.gaierror

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", look_up)
        try:
            yield
        finally:
            is_over.set()
