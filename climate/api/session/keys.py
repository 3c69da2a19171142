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
    """Interface of a source of the keys that encrypt session cookies, such as a file."""

    def fernet(self) -> MultiFernet:
        """Return the current keys, as an object that encrypts and decrypts."""


def for_config(conf: ConfigOpts) -> Keys | None:
    """Return the source of the keys that the configuration selects.

    - If the option ``[console] session_key_file`` is set, the source is that file.
    - Otherwise, with SQLite (a database of one machine), the source is a file beside the database.
    - Otherwise, without authentication, the source is a random key in each process.
    - Otherwise return None: no user can sign in, because the processes have no common key.

    Raises Misconfigured if ``session_key_file`` is unreadable or has a malformed key.
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
    LOG.warning("users cannot sign in to the console: [console] session_key_file is not set")
    return None


def _is_of_one_machine(url: sa.URL) -> bool:
    return url.get_backend_name() == "sqlite"


class RandomKey:
    """A random key in the memory of this process; sessions end when the process ends."""

    def __init__(self) -> None:
        self._fernet = MultiFernet([Fernet(Fernet.generate_key())])

    def fernet(self) -> MultiFernet:
        """Return an object that encrypts and decrypts with the key."""
        return self._fernet


class KeyFile:
    """A file with session keys, one per line.

    When an operator changes the file, the process reads it again without a restart (key rotation).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: _Stamp | None = None
        self._fernet: MultiFernet | None = None

    def load(self) -> MultiFernet:
        """Read the keys from the file, and return them as an object that encrypts and decrypts.

        Raises Misconfigured if the file is unreadable or a key is malformed. The error message
        never contains a key.
        """
        try:
            stamp, text = _stamp(self._path), self._path.read_text(encoding="ascii")
            mode = self._path.stat().st_mode
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise Misconfigured(f"{self._path} cannot be read: {reason}") from None
        if mode & _OF_OTHERS:
            LOG.warning(
                "other users of this machine can read %s: it must have mode 600", self._path
            )
        fernet = parse(text, str(self._path))
        self._stamp, self._fernet = stamp, fernet
        return fernet

    def fernet(self) -> MultiFernet:
        """Return the keys in the file, as an object that encrypts and decrypts.

        Read the file again if it has changed. If it has become unusable, return the previous keys.
        """
        if self._fernet is None:
            return self.load()
        try:
            if _stamp(self._path) != self._stamp:
                return self.load()
        except (OSError, Misconfigured) as error:
            LOG.warning(
                "cannot use the changed session keys, the previous session keys remain in use: %s",
                error,
            )
        return self._fernet


class CreatedKeyFile(KeyFile):
    """A session key file. If the file does not exist, a process creates it with a random key."""

    def load(self) -> MultiFernet:
        """Return the keys in the file, as ``KeyFile.load`` does.

        Create the file first if it does not exist.
        """
        try:
            self._create()
        except OSError as error:
            raise Misconfigured(f"{self._path} cannot be created: {error.strerror}") from None
        return super().load()

    def _create(self) -> None:
        """Create the file in one step, so that no other process reads a half-written file."""
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
    """Return the keys in ``text``, which has one key per line.

    ``name`` is the file name for errors. Ignores empty lines and lines that begin with ``#``.
    Raises Misconfigured if there is no key, or if a line is malformed; the message contains the
    line number, not the key.
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
