"""Runs an operator's program in a process group of its own."""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

# Seconds to wait for the end of a killed program. climate may not kill a program of another user.
_KILL_WAIT = 1.0


@contextmanager
def running(words: Sequence[str], streams: int) -> Iterator["subprocess.Popen[str]"]:
    """Context manager: start a program, without a shell, and yield its process.

    If the program still runs after the block, kill it with its child processes (process group).
    ``streams`` is PIPE or DEVNULL, for its input and output. Raises OSError if the program cannot
    be started.
    """
    process = subprocess.Popen(  # noqa: S603 - configured by the operator, without a shell
        words,
        stdin=streams,
        stdout=streams,
        stderr=streams,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        yield process
    finally:
        _end(process)


def _end(process: "subprocess.Popen[str]") -> None:
    # When the program was reaped, its number may already be that of another process group.
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_WAIT)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()
