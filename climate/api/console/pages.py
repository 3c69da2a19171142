"""The routes of ``/console``: the page of the web console, and its files.

All paths of the console, except its files, return the same page. A script in the page reads the
path, and shows what the path names, such as a lease.
"""

from collections.abc import Iterator
from functools import cache
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable

import rcssmin
import rjsmin
from flask import request

from climate.api import discovery
from climate.api.call import Answer, Api
from climate.api.route import Route
from climate.api.server.static_files import StaticFiles

_STATIC = files("climate.api.console") / "static"
_PAGE = "index.html"
_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_MINIFIERS = {_MEDIA_TYPES[".css"]: rcssmin.cssmin, _MEDIA_TYPES[".js"]: rjsmin.jsmin}
# Scripts come from files only, and no script can turn text into markup.
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none';"
    " form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script';"
    " trusted-types 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def home(api: Api) -> Answer:
    """Redirect a browser to the console; list the versions for other clients."""
    if not api.conf.console.enabled:
        return discovery.versions(api)
    best = request.accept_mimetypes.best_match(["application/json", "text/html"])
    if best == "text/html":
        location = f"{request.root_path}/console/"
        return None, 302, {"Location": location, "Vary": "Accept"}
    return discovery.versions(api)


def page(_api: Api, **_path: str) -> Answer:
    """Return the HTML page of the web console, which is the same for each path."""
    html = (_STATIC / _PAGE).read_text(encoding="utf-8")
    root = escape(request.root_path, quote=True)
    html = html.replace("{{root}}", root).replace("{{version}}", _files().version)
    return html, 200, _HEADERS


def file(_api: Api, version: str, name: str, folder: str = "", inner: str = "") -> Answer:
    """Return a static file of the web console, such as a script; raise NotFound if there is none.

    ``name`` is the file name, ``folder`` its folder, and ``inner`` a folder in ``folder``.
    ``version`` is the version of the console in the URL. If it is the present version, browsers may
    cache the file forever, because a changed file has another URL.
    """
    path = "/".join(part for part in (folder, inner, name) if part)
    body, status, headers = _files().answer(path, version)
    return body, status, {"Cross-Origin-Resource-Policy": "same-origin", **headers}


ROUTES = [
    Route("GET", "/console", page),
    Route("GET", "/console/", page),
    Route("GET", "/console/<section>", page),
    Route("GET", "/console/<section>/<item>", page),
    Route("GET", "/console/static/<version>/<name>", file),
    Route("GET", "/console/static/<version>/<folder>/<name>", file),
    Route("GET", "/console/static/<version>/<folder>/<inner>/<name>", file),
]


@cache
def _files() -> StaticFiles:
    return StaticFiles(dict(_listed(_STATIC, "")), _MINIFIERS)


def _listed(folder: Traversable, prefix: str) -> Iterator[tuple[str, tuple[Traversable, str]]]:
    for entry in folder.iterdir():
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            yield from _listed(entry, f"{name}/")
        elif media_type := _MEDIA_TYPES.get(f".{entry.name.rpartition('.')[2]}"):
            yield name, (entry, media_type)
