"""A process that cannot start a thread, because it has too many."""

import threading

import pytest


def fail_once(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the next start of a thread called ``name`` fail, as at the limit of the system."""
    start = threading.Thread.start
    failed: list[threading.Thread] = []

    def start_or_fail(thread: threading.Thread) -> None:
        if thread.name == name and not failed:
            failed.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_fail)
