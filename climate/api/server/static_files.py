"""Static files of web pages, with entity tags.

Each file is read, minified and compressed once, then cached.
"""

import gzip
import hashlib
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib.resources.abc import Traversable
from typing import NamedTuple

from flask import request

from climate.core.errors import NotFound

# The browser keeps the file, and asks before each use whether it is current.
_REVALIDATE = "no-cache"
_FOREVER = "public, max-age=31536000, immutable"


class _File(NamedTuple):
    """The content of a file, plain and compressed, with its entity tag."""

    content: bytes
    compressed: bytes
    tag: str


class StaticFiles:
    """A set of static files.

    ``places`` maps the name of a file, as in URLs, to a tuple: path and media type of the file.
    ``minifiers`` maps a media type to the function that minifies files of this type. Files of other
    types stay unchanged.
    """

    def __init__(
        self,
        places: Mapping[str, tuple[Traversable, str]],
        minifiers: Mapping[str, Callable[[str], str]] | None = None,
    ) -> None:
        self._places = places
        self._minifiers = minifiers or {}
        self._read: dict[str, _File] = {}

    @cached_property
    def version(self) -> str:
        """A digest of the names and contents of all files.

        If it is part of the URLs of files, a changed file gets a new URL, and browsers load it.
        """
        digest = hashlib.sha256()
        for name in sorted(self._places):
            digest.update(f"{name}\n{self._file(name).tag}\n".encode())
        return digest.hexdigest()[:16]

    def answer(self, name: str, version: str | None = None) -> tuple[bytes, int, Mapping[str, str]]:
        """Return the body, the status and the headers of the response for the file ``name``.

        ``version`` is the version in the requested URL. If it equals ``self.version``, browsers may
        cache the file forever. Otherwise they must revalidate the file before each use. Raises
        NotFound if there is no such file.
        """
        if name not in self._places:
            raise NotFound("The requested URL was not found on the server.")
        stored, media_type = self._file(name), self._places[name][1]
        is_compressed = request.accept_encodings.quality("gzip") > 0
        headers = {
            "Content-Type": media_type,
            "Cache-Control": _FOREVER if version == self.version else _REVALIDATE,
            "ETag": f'"{stored.tag}{"-gzip" if is_compressed else ""}"',
            "Vary": "Accept-Encoding",
        }
        if not is_compressed:
            return stored.content, 200, headers
        return stored.compressed, 200, {**headers, "Content-Encoding": "gzip"}

    def _file(self, name: str) -> _File:
        if name not in self._read:
            place, media_type = self._places[name]
            content = place.read_bytes()
            if minify := self._minifiers.get(media_type):
                content = minify(content.decode()).encode()
            digest = hashlib.sha256(content).hexdigest()[:32]
            self._read[name] = _File(content, gzip.compress(content, mtime=0), digest)
        return self._read[name]
