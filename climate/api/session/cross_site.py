"""Decides whether a request may come from a page of another site (CSRF).

Browsers send the header ``Origin`` with each request except GET and HEAD, and no page can forge it.
Neither can a page add a header of its own to a request to another site without that site's
permission.

https://cheatsheetseries.owasp.org/cheatsheets/Cross-Site_Request_Forgery_Prevention_Cheat_Sheet.html
"""

import hmac
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from climate.core.errors import CrossSiteRequest

CSRF_HEADER = "X-Climate-Csrf"
CSRF_KEY = "HTTP_X_CLIMATE_CSRF"
READ_METHODS = {"GET", "HEAD"}


def check_origin(environ: Mapping[str, Any]) -> None:
    """Raise CrossSiteRequest unless the headers show that a page of this site sent the request."""
    origin, host = environ.get("HTTP_ORIGIN", ""), environ.get("HTTP_HOST", "")
    if not _is_own(origin, host, environ["wsgi.url_scheme"]):
        raise CrossSiteRequest(
            f"Only pages of this site may send this request: Origin is {origin!r}, Host is"
            f" {host!r}. A proxy must pass the Host header of the browser"
        )
    if environ.get("HTTP_SEC_FETCH_SITE", "same-origin") != "same-origin":
        raise CrossSiteRequest("A page of another site sent this request (Sec-Fetch-Site)")


def check(environ: Mapping[str, Any], secret: str) -> None:
    """Raise CrossSiteRequest if a request with a session cookie may come from another site.

    The request must carry ``secret``, the ``csrf`` of the session, in a header. GET and HEAD pass.
    """
    if environ["REQUEST_METHOD"] in READ_METHODS:
        return
    check_origin(environ)
    if not hmac.compare_digest(environ.get(CSRF_KEY, "").encode(), secret.encode()):
        raise CrossSiteRequest(
            f"The header {CSRF_HEADER} must have the value of csrf in GET /console/session"
        )


def _is_own(origin: str, host: str, scheme: str) -> bool:
    """Return whether ``origin`` has the host ``host``, and https if this connection has it."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    schemes = {"https"} if scheme == "https" else {"http", "https"}
    return bool(host) and parts.scheme in schemes and parts.netloc.lower() == host.lower()
