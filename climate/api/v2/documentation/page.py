"""``/v2/docs``: the page and its files, those of Swagger UI included."""

import gzip
import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import flask_swagger_ui
from flask import request

from climate.api.call import Answer, Api
from climate.core.errors import NotFound

# Swagger UI sets styles by script, which needs no permission, and has images in its style sheet.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_OWN = files("climate.api.v2.documentation") / "static"
_SWAGGER_UI = files(flask_swagger_ui) / "dist"
# File name: the folder that contains the file, and its media type.
_FILES = {
    "page.css": (_OWN, "text/css; charset=utf-8"),
    "start.js": (_OWN, "text/javascript; charset=utf-8"),
    "swagger-ui.css": (_SWAGGER_UI, "text/css; charset=utf-8"),
    "swagger-ui-bundle.js": (_SWAGGER_UI, "text/javascript; charset=utf-8"),
    "favicon-32x32.png": (_SWAGGER_UI, "image/png"),
}


class _File(NamedTuple):
    """A file, plain and compressed, with its entity tag."""

    content: bytes
    compressed: bytes
    tag: str


def page(_api: Api) -> Answer:
    """Return a page that shows this document and sends requests."""
    html = (_OWN / "page.html").read_text(encoding="utf-8")
    return html, 200, {"Content-Security-Policy": _POLICY}


def file(_api: Api, name: str) -> Answer:
    """Return a file of the page; raises NotFound."""
    if name not in _FILES:
        raise NotFound("The requested URL was not found on the server.")
    stored, media_type = _read(name), _FILES[name][1]
    is_compressed = request.accept_encodings.quality("gzip") > 0
    headers = {
        "Content-Type": media_type,
        "Cache-Control": "no-cache",  # the browser keeps the file, and asks whether it is current
        "ETag": f'"{stored.tag}{"-gzip" if is_compressed else ""}"',
        "Vary": "Accept-Encoding",
    }
    if not is_compressed:
        return stored.content, 200, headers
    return stored.compressed, 200, {**headers, "Content-Encoding": "gzip"}


@cache
def _read(name: str) -> _File:
    content = (_FILES[name][0] / name).read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:32]
    return _File(content, gzip.compress(content, mtime=0), digest)
