"""Runs a program after ``main`` has parsed its command line.

This module imports only what all programs need, and the module of the program that runs. So
programs that need little, such as climate-listen, start fast.
"""

import argparse
import gc
import signal
import socket
import sys
import threading
from collections.abc import Callable
from importlib import import_module

from oslo_config import cfg
from oslo_config.cfg import ConfigOpts

from climate.config import registry as config_registry
from climate.core.errors import OperatorError

Program = Callable[[ConfigOpts, argparse.Namespace], int | None]

# Python collects garbage after this many allocations; one collection takes about 5 ms.
_COLLECT = 50_000


def run(parser: argparse.ArgumentParser, arguments: argparse.Namespace, program: str) -> int:
    """Run a program, such as ``climate.cmd.programs:api``; return its exit code.

    If the operator can repair the cause of an error, print the error as one line, without a stack
    trace.
    """
    module, _, name = program.partition(":")
    # Imports leave little garbage, and looking for it takes a tenth of their time.
    gc.set_threshold(_COLLECT)
    try:
        conf = _load_config(parser, arguments)
        work: Program = getattr(import_module(module), name)
        return work(conf, arguments) or 0
    except (OperatorError, cfg.Error) as error:
        sys.stderr.write(f"{parser.prog}: {' '.join(str(error).split())}\n")
        return 1


def _load_config(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> ConfigOpts:
    """Return the configuration. The command line takes precedence over the files."""
    options = [f"--config-file={path}" for path in arguments.config_file]
    options += ["--debug"] if arguments.debug else []
    conf = config_registry.new()
    config_registry.load(conf, parser.prog, options)
    for name, option, group in (
        ("host", "host", None),
        ("port", "port", None),
        ("database", "connection", "database"),
        ("transport_url", "transport_url", "notifications"),
        ("topic", "topics", "notifications"),
    ):
        value = getattr(arguments, name, None)
        if value is not None:
            try:
                conf.set_override(option, value, group=group)
            except ValueError as error:
                parser.error(f"argument --{name.replace('_', '-')} {value}: {error}")
    return conf


def prepare_to_run() -> threading.Event:
    """Prepare this process for a long run; return a threading.Event that SIGTERM and SIGINT set."""
    stopping = _stop_on_signal()
    settle()
    return stopping


def settle() -> None:
    """Tune the garbage collector for a long-running process; call this when all code is loaded.

    From now on, the collector ignores all objects that exist already. Checking them would stop all
    threads for about 100 ms, and delay the starts of leases. The function also makes collections
    rare, because reference counting frees nearly all objects. With Python's default threshold, a
    busy manager spends a fifth of its time on collections.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT)


def _stop_on_signal() -> threading.Event:
    """Return a threading.Event that SIGTERM and SIGINT set, whichever thread receives the signal.

    Python runs signal handlers only in the main thread. If the kernel delivers the signal to
    another thread, the main thread sleeps on, and a handler that sets the event would not run. So
    Python writes a byte to a socket (``signal.set_wakeup_fd``), which works in any thread. A
    separate thread reads the byte and sets the event.
    """
    stopping = threading.Event()
    receiver, sender = socket.socketpair()
    sender.settimeout(0)  # the C signal handler must not block
    signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    parts = (stopping, receiver, sender)
    threading.Thread(target=_await_signals, args=parts, name="signals", daemon=True).start()
    return stopping


def _await_signals(
    stopping: threading.Event, receiver: socket.socket, _sender: socket.socket
) -> None:
    """Set ``stopping`` when a byte arrives at ``receiver``, which means that a signal has arrived.

    The parameter ``_sender`` only keeps its socket open.
    """
    while receiver.recv(1):
        stopping.set()
