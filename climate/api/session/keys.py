"""Keys that encrypt session cookies. All API processes that serve a site need the same keys.

They are Fernet keys (https://github.com/fernet/spec). The first key encrypts; each key decrypts.
"""

import logging
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import sqlalchemy as sa
from cryptography.fernet import Fernet, MultiFernet
from oslo_config.cfg import ConfigOpts

from climate.config.registry import Misconfigured

LOG = logging.getLogger(__name__)

_PRIVATE = 0o600
_OF_OTHERS = 0o077
# Identifies a version of a file: device, inode, time of the last change, size.
_Stamp = tuple[int, int, int, int]


class Keys(Protocol):
    """Interface of a source of the keys for session cookies."""

    def fernet(self) -> MultiFernet:
        """Return the current keys, as an object that encrypts and decrypts."""


def for_config(conf: ConfigOpts) -> Keys | None:
    """Return the source of the keys that the configuration selects. Raises Misconfigured.

    - With ``[console] session_key_file``: that file.
    - Otherwise with SQLite, which only one machine uses: a file beside the database.
    - Otherwise without authentication: a random key in each process.
    - Otherwise None, and nobody can sign in: processes that check passwords must share keys.
    """
    if conf.console.session_key_file:
        keys = KeyFile(Path(conf.console.session_key_file))
        keys.load()
        return keys
    url = sa.make_url(conf.database.connection)
    if _is_of_one_machine(url):
        return CreatedKeyFile(Path(f"{url.database}.session-key"))
    if conf.api.auth_strategy == "noauth":
        return RandomKey()
    LOG.warning("nobody can sign in to the console: [console] session_key_file is not set")
    return None


def _is_of_one_machine(url: sa.URL) -> bool:
    return url.get_backend_name() == "sqlite"


class RandomKey:
    """A random key that exists only in this process, until it ends."""

    def __init__(self) -> None:
        self._fernet = MultiFernet([Fernet(Fernet.generate_key())])

    def fernet(self) -> MultiFernet:
        """Return the key."""
        return self._fernet


class KeyFile:
    """A file with one key per line.

    If it changes, it is read again: keys rotate without restart.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: _Stamp | None = None
        self._fernet: MultiFernet | None = None

    def load(self) -> MultiFernet:
        """Read the file. Raises Misconfigured, with a message that shows no key."""
        try:
            stamp, text = _stamp(self._path), self._path.read_text(encoding="ascii")
            mode = self._path.stat().st_mode
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise Misconfigured(f"{self._path} cannot be read: {reason}") from None
        if mode & _OF_OTHERS:
            LOG.warning("other users can access %s: it must have mode 600", self._path)
        fernet = parse(text, str(self._path))
        self._stamp, self._fernet = stamp, fernet
        return fernet

    def fernet(self) -> MultiFernet:
        """Return the keys in the file; if it cannot be read now, those read before."""
        if self._fernet is None:
            return self.load()
        try:
            if _stamp(self._path) != self._stamp:
                return self.load()
        except (OSError, Misconfigured) as error:
            LOG.warning("the previous session keys remain in use: %s", error)
        return self._fernet


class CreatedKeyFile(KeyFile):
    """A key file that the first process creates that needs it."""

    def load(self) -> MultiFernet:
        """Read the file; if it is absent, create it first. Raises Misconfigured."""
        try:
            self._create()
        except OSError as error:
            raise Misconfigured(f"{self._path} cannot be created: {error.strerror}") from None
        return super().load()

    def _create(self) -> None:
        """Create the file and its content in one step, so that no process reads a part of it."""
        if self._path.exists():
            return
        draft = self._path.with_name(f"{self._path.name}.{secrets.token_hex(8)}")
        try:
            descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _PRIVATE)
            with os.fdopen(descriptor, "wb") as file:
                file.write(Fernet.generate_key() + b"\n")
            self._path.hardlink_to(draft)
        except FileExistsError:
            pass  # another process was faster
        finally:
            draft.unlink(missing_ok=True)


def parse(text: str, name: str) -> MultiFernet:
    """Return the keys in ``text``, one per line; ``name`` is the name of the file.

    Empty lines and lines that begin with ``#`` are ignored. Raises Misconfigured with the number of
    the malformed line.
    """
    lines = [(n, line.strip()) for n, line in enumerate(text.splitlines(), 1)]
    found: Sequence[tuple[int, str]] = [(n, line) for n, line in lines if line and line[0] != "#"]
    if not found:
        raise Misconfigured(f"{name} has no key")
    keys = []
    for number, line in found:
        try:
            keys.append(Fernet(line))
        except ValueError:
            raise Misconfigured(
                f"{name}, line {number}: a key must be the URL-safe base64 of 32 bytes"
            ) from None
    return MultiFernet(keys)


def _stamp(path: Path) -> _Stamp:
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
