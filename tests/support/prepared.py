"""What services of several tests do first: done once in each process, then copied.

To register a host is a request of some twenty statements, and every third test begins with that.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

if TYPE_CHECKING:
    from tests.support.service import Story

# For each beginning of a test: a database in memory, and the journal of the simulated cloud.
_known: dict[object, tuple[sqlite3.Connection, bytes]] = {}


def once(story: "Story", what: object, prepare: Callable[[], None]) -> None:
    """Prepare a service, or copy what an equal service of this process had after that.

    Services are equal if their settings, plug-ins and time are; ``what`` names the preparation.
    """
    if not _is_untouched(story):
        prepare()
        return
    key = (what, story.clock.now(), tuple(story.runtime.plugins), repr(story.runtime.settings))
    if key not in _known:
        prepare()
        _known[key] = _copy(story)
    else:
        _restore(story, *_known[key])


def _files(story: "Story") -> tuple[Path, Path]:
    """Return the files of the SQLite database and of the simulated cloud."""
    database = story.runtime.database.engine.url.database
    return Path(str(database)), Path(story.conf.simulated.journal)


def _is_untouched(story: "Story") -> bool:
    """Return whether nothing was ever written to the database, which is SQLite, and the cloud."""
    if story.runtime.database.dialect != "sqlite" or not story.conf.simulated.journal:
        return False
    database, journal = _files(story)
    if not database.is_file() or journal.exists():
        return False
    log = Path(f"{database}-wal")
    if log.exists() and log.stat().st_size:
        return False
    with story.runtime.database.read() as session:
        stored = (f"SELECT 1 FROM {table}" for table in ("resources", "leases", "outbox"))  # noqa: S608
        return not any(session.scalar(sa.text(query)) for query in stored)


def _copy(story: "Story") -> tuple[sqlite3.Connection, bytes]:
    database, journal = _files(story)
    memory = sqlite3.connect(":memory:", check_same_thread=False)
    with closing(sqlite3.connect(database)) as source:
        source.backup(memory)
    return memory, journal.read_bytes() if journal.exists() else b""


def _restore(story: "Story", memory: sqlite3.Connection, effects: bytes) -> None:
    database, journal = _files(story)
    with closing(sqlite3.connect(database)) as target:
        target.execute("PRAGMA synchronous=OFF")
        memory.backup(target)
    journal.write_bytes(effects)
