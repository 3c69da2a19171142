"""The pages ``/v2/errors/<code>``, to which the member ``type`` of an error in v2 points."""

import re
from html import escape

from flask import request
from marshmallow import Schema, fields

from climate.api.call import Answer, Api
from climate.api.errors.catalogue import CODES
from climate.core.errors import NotFound

_POLICY = "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'"
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} - climate</title>
<link rel="stylesheet" href="{root}/v2/docs/page.css">
</head>
<body class="text">
<h1>{title}</h1>
<p>Code <code>{code}</code>, status {status}</p>
<p>{meaning}</p>
<h2>What to do</h2>
<p>{remedy}</p>
<p><a href="{root}/v2/docs">All routes of the API</a></p>
</body>
</html>
"""


class ErrorPage(Schema):
    """An error code: its HTTP status, a summary, its meaning, and what a client can do."""

    code = fields.String()
    status = fields.Integer()
    title = fields.String()
    meaning = fields.String()
    what_to_do = fields.String(attribute="remedy")


_ERROR_PAGE = ErrorPage()


def show(_api: Api, code: str) -> Answer:
    """Explain an error code, in HTML for browsers and in JSON for other clients."""
    if code not in CODES:
        raise NotFound(f"There is no error code {code[:100]}")
    entry, headers = CODES[code], {"Vary": "Accept"}
    best = request.accept_mimetypes.best_match(["application/json", "text/html"])
    if best != "text/html":
        return _ERROR_PAGE.dump({"code": code, **entry._asdict()}), 200, headers
    html = _PAGE.format(
        root=escape(request.root_path, quote=True),
        code=code,
        status=entry.status,
        title=escape(entry.title),
        meaning=_marked_up(entry.meaning),
        remedy=_marked_up(entry.remedy),
    )
    return html, 200, {**headers, "Content-Security-Policy": _POLICY}


def _marked_up(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
