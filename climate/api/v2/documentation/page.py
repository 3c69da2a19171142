"""The routes of ``/v2/docs``: an interactive page about the v2 API (Swagger UI), and its files."""

from importlib.resources import files

import flask_swagger_ui

from climate.api.call import Answer, Api
from climate.api.server.static_files import StaticFiles

# Swagger UI sets styles by script, which needs no permission, and has images in its style sheet.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_OWN = files("climate.api.v2.documentation") / "static"
_SWAGGER_UI = files(flask_swagger_ui) / "dist"
_CSS, _SCRIPT = "text/css; charset=utf-8", "text/javascript; charset=utf-8"
_FILES = StaticFiles(
    {
        "page.css": (_OWN / "page.css", _CSS),
        "start.js": (_OWN / "start.js", _SCRIPT),
        "swagger-ui.css": (_SWAGGER_UI / "swagger-ui.css", _CSS),
        "swagger-ui-bundle.js": (_SWAGGER_UI / "swagger-ui-bundle.js", _SCRIPT),
        "favicon-32x32.png": (_SWAGGER_UI / "favicon-32x32.png", "image/png"),
    }
)


def page(_api: Api) -> Answer:
    """Return an interactive page that documents this API and can send requests to it."""
    html = (_OWN / "page.html").read_text(encoding="utf-8")
    return html, 200, {"Content-Security-Policy": _POLICY}


def file(_api: Api, name: str) -> Answer:
    """Return a file of the interactive page, such as a script; raise NotFound if there is none."""
    return _FILES.answer(name)
