"""Rejects requests that a page of another site made the browser send (CSRF).

Browsers send the header ``Origin`` with each request except GET and HEAD, and a page cannot forge
this header. A page can add other headers to a request to another site only if that site permits it.
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
    """Check from the headers that a page of this site sent the request.

    Raises CrossSiteRequest if the headers name another site, or no site.
    """
    origin, host = environ.get("HTTP_ORIGIN", ""), environ.get("HTTP_HOST", "")
    if not _is_own(origin, host, environ["wsgi.url_scheme"]):
        raise CrossSiteRequest(
            f"Only pages of this site may send this request: Origin is {origin!r}, Host is"
            f" {host!r}. A proxy must pass the Host header of the browser"
        )
    if environ.get("HTTP_SEC_FETCH_SITE", "same-origin") != "same-origin":
        raise CrossSiteRequest("A page of another site sent this request (Sec-Fetch-Site)")


def check(environ: Mapping[str, Any], secret: str) -> None:
    """Raise CrossSiteRequest if another site may have sent a request with a session cookie.

    The request must repeat ``secret``, the ``csrf`` value of the session, in the header
    X-Climate-Csrf. GET and HEAD requests are allowed without it.
    """
    if environ["REQUEST_METHOD"] in READ_METHODS:
        return
    check_origin(environ)
    if not hmac.compare_digest(environ.get(CSRF_KEY, "").encode(), secret.encode()):
        raise CrossSiteRequest(
            f"The header {CSRF_HEADER} must have the value of csrf in GET /console/session"
        )


def _is_own(origin: str, host: str, scheme: str) -> bool:
    """Return whether ``origin`` is this site: its host is ``host``, and its scheme is plausible.

    ``scheme`` is the scheme of the connection to this server. If it is https, ``origin`` must be
    https, too. If it is http, ``origin`` may also be https, because a proxy can end the TLS
    connection.
    """
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    schemes = {"https"} if scheme == "https" else {"http", "https"}
    return bool(host) and parts.scheme in schemes and parts.netloc.lower() == host.lower()
