"""climate's API on its HTTP server, and a minimal API for comparison."""

import logging
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import sqlalchemy as sa
import waitress
from flask import Flask, jsonify, request
from marshmallow import Schema, fields, validate

from benchmarks.admission.tasks import ROWS, fill_memory, make_conf
from climate.cmd import bootstrap, launch
from climate.db.engine.database import Database

_SPAWN = multiprocessing.get_context("spawn")
# Seconds until a server is ready; it may load a large calendar.
_PATIENCE = 600.0


class _Lease(Schema):
    name = fields.String(required=True, validate=validate.Length(1, 80))
    start_date = fields.String(required=True)
    end_date = fields.String(required=True)
    reservations = fields.List(fields.Dict(), required=True)


def bare(url: str) -> Flask:
    """Return an application that validates a body, commits one row and returns it."""
    app = Flask("bare", static_folder=None)
    engine = Database(url).engine.execution_options(isolation_level="AUTOCOMMIT")
    schema = _Lease()

    @app.post("/v1/leases")
    def create() -> Any:  # noqa: ANN401 - any type that Flask accepts
        data: Any = schema.load(request.get_json())
        row = {"id": str(uuid4()), "name": data["name"], "made_at": datetime.now(UTC).isoformat()}
        with engine.connect() as connection:
            connection.execute(sa.insert(ROWS), row)
        return jsonify({**data, **row}), 201

    return app


def api(url: str) -> Flask:
    """Return climate's application."""
    conf = make_conf(url)
    runtime = bootstrap.make_checked_runtime(conf)
    fill_memory(runtime)
    return bootstrap.make_api(conf, runtime)


@dataclass(frozen=True, slots=True)
class Server:
    """A server process on ``port`` of the loopback."""

    port: int
    pid: int

    @property
    def memory_mib(self) -> float | None:
        """Return the memory of the process, on Linux."""
        status = Path(f"/proc/{self.pid}/status")
        if not status.exists():
            return None
        [held] = [line for line in status.read_text().splitlines() if line.startswith("VmRSS")]
        return round(int(held.split()[1]) / 1024, 1)


@contextmanager
def serving(make: Any, url: str) -> Iterator[Server]:  # noqa: ANN401 - ``bare`` or ``api``
    """Run an application on a server in a new process."""
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_serve, args=(theirs, make, url), daemon=True)
    process.start()
    assert ours.poll(_PATIENCE), "the server does not start"
    assert process.pid is not None
    yield Server(ours.recv(), process.pid)
    process.terminate()
    process.join(_PATIENCE)


def _serve(pipe: Any, make: Any, url: str) -> None:  # noqa: ANN401
    # The benchmark fills waitress's queue on purpose, so its warnings are noise.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    server: Any = waitress.create_server(make(url), host="127.0.0.1", port=0, threads=8)
    launch.settle()
    pipe.send(server.effective_port)
    server.run()
