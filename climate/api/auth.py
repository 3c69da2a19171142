"""Authentication: identify the caller of a request.

With ``[api] auth_strategy = keystone``, keystonemiddleware removes the identity headers that the
client sent, validates the token with Keystone, and sets the headers from the token. climate itself
sends the error responses, in the format of the API version. If Keystone is unreachable, the error
response says so, instead of reporting an invalid token.

Without authentication, climate trusts the text of the token: ``user:project[:role,...]``.
"""

import ipaddress
import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from flask import Flask, request
from keystoneauth1.exceptions import ClientException
from keystonemiddleware.auth_token import AuthProtocol
from oslo_config.cfg import ConfigOpts
from webob.exc import HTTPServiceUnavailable, HTTPUnauthorized
from werkzeug import Request

from climate.config.registry import TOKEN_CHECKER, Misconfigured
from climate.core.errors import (
    ClimateError,
    Forbidden,
    ForeignOrigin,
    IdentityUnavailable,
    Unauthenticated,
)
from climate.manager.leases.create import Owner

_MAX_ID_LENGTH = 255


@dataclass(frozen=True, slots=True)
class Caller(Owner):
    """The user that sent a request, and the project in which the user acts."""

    # Roles of the service that forwards the request, if it sends a service token.
    service_roles: tuple[str, ...] = ()
    # When the token expires, if it does.
    expires_at: datetime | None = None
    # The names of user and project, if they are not the ids.
    user_name: str | None = None
    project_name: str | None = None


Identify = Callable[[Request], Caller]

_ADMIN = Caller("admin", "admin", ("admin", "member", "reader"))
_DEFAULT_ROLES = ("member", "reader")
# What keystoneauth sends as the token with `openstack --os-auth-type none`.
_NOT_USED = "notused"
# Other names in a Host header that browsers or /etc/hosts resolve to loopback.
_LOCAL_NAMES = {"localhost.", "ip6-localhost"}


def by_token_text(request: Request) -> Caller:
    """Return the caller that the text of the token names, without checking who sent the token.

    The text has the form ``user:project[:role,...]``. If the request has no token (or the token is
    ``notused``), the caller is ``admin`` with all roles. If the token names no roles, the caller
    has the roles member and reader.

    Raises Unauthenticated if the text is malformed. Raises ForeignOrigin if a web page of another
    site sent the request; otherwise that page could act as ``admin``.
    """
    _check_origin(request)
    token = request.headers.get("X-Auth-Token")
    if token in {None, _NOT_USED}:
        return _ADMIN
    user, _, rest = token.partition(":")
    project, _, roles = rest.partition(":")
    is_storable = "\x00" not in token and max(len(user), len(project)) <= _MAX_ID_LENGTH
    if not (user and project and is_storable):
        raise Unauthenticated("X-Auth-Token must be user:project or user:project:role,role...")
    given_roles = tuple(role.strip().lower() for role in roles.split(",") if role.strip())
    return Caller(user, project, given_roles or _DEFAULT_ROLES)


def _check_origin(request: Request) -> None:
    origin, host = request.headers.get("Origin"), request.headers.get("Host", "")
    is_foreign = origin is not None and origin.partition("://")[2].lower() != host.lower()
    if is_foreign or request.headers.get("Sec-Fetch-Site") == "cross-site":
        raise ForeignOrigin(
            "There is no authentication, so requests from web pages of other sites are rejected"
            f" (Origin: {origin})"
        )


def by_token_text_on_loopback(bind_host: str, request: Request) -> Caller:
    """Return the caller as ``by_token_text`` does, but only for requests from this machine.

    Raises Forbidden if the request comes from another machine. Such requests arrive only if the
    application runs in a WSGI server other than climate's own, which listens on loopback.

    ``bind_host`` is the configured host on which the API listens. Raises ForeignOrigin if the
    header ``Host`` names neither loopback nor ``bind_host``. Without this check, a web page whose
    name resolves to this machine (DNS rebinding) could read responses.
    """
    check_local(bind_host, request)
    return by_token_text(request)


def check_local(bind_host: str, request: Request) -> None:
    """Check that the request comes from this machine; used if there is no authentication.

    ``bind_host`` is the configured host on which the API listens. Raises Forbidden if the sender is
    another machine. Raises ForeignOrigin if the header ``Host`` names neither loopback nor
    ``bind_host``.
    """
    if request.remote_addr and not is_loopback(request.remote_addr):
        raise Forbidden(
            "There is no authentication, so only this machine is served (see [api]"
            " serve_unauthenticated_to_the_network)"
        )
    host = request.headers.get("Host", "")
    if host and not names_this_machine(host) and _hostname(host) != bind_host.lower():
        raise ForeignOrigin(
            f"There is no authentication, so the host {host} is rejected: use localhost, a loopback"
            " address, or the name in [DEFAULT] host"
        )


def names_this_machine(host: str) -> bool:
    """Return whether ``host``, a Host header such as ``localhost:1234``, means a loopback address.

    Other names of this machine, such as its name in DNS, are not recognised.
    """
    name = _hostname(host)
    return is_loopback(name) or name in _LOCAL_NAMES or name.endswith(".localhost")


@lru_cache
def _hostname(host: str) -> str:
    """Return the name or address in a Host header, without the port.

    If the header is malformed, return an empty string.
    """
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


@lru_cache
def is_loopback(host: str) -> bool:
    """Return whether ``host`` is a loopback address or the name ``localhost``."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


LOG = logging.getLogger(__name__)

_ERROR = "climate.identity_error"
_IS_OPEN = "climate.is_open"
# Keys of the WSGI environment, set by climate.api.session: the error in the session, if any; and
# whether to check the session's token even if the path needs no identity.
SESSION_ERROR = "climate.session_error"
CHECKS_TOKEN = "climate.checks_token"  # noqa: S105 - not a token
# The characters of any kind of token. A proxy in front of Keystone may reject other characters, and
# its error would look like a failure of Keystone.
_TOKEN = re.compile(r"[!-~]{1,8000}")
_TOKEN_HEADERS = ("X-Auth-Token", "X-Storage-Token", "X-Service-Token")


def guard(app: Flask, conf: ConfigOpts, open_paths: Collection[str]) -> Identify:
    """Make ``app`` require a valid Keystone token on all paths except ``open_paths``.

    ``open_paths`` are paths of Flask routes, such as ``/feeds/<secret>.ics``. Returns the function
    that identifies the caller of a request. Raises Misconfigured if the options in
    ``[keystone_authtoken]`` are unusable.
    """
    app.wsgi_app = _gate(app.wsgi_app, conf, open_paths)  # type: ignore[method-assign]  # as in its docs

    def check() -> None:
        if not request.environ[_IS_OPEN]:
            _raise_error(request)

    app.before_request(check)
    return by_token


def path_pattern(paths: Collection[str]) -> re.Pattern[str]:
    """Return a regular expression that matches the same paths as the Flask routes ``paths``."""
    return re.compile("|".join(re.sub(r"<\w+>", "[^/]+", re.escape(path)) for path in paths))


def by_token(request: Request) -> Caller:
    """Return the caller of a request whose Keystone token has been validated.

    Raises Unauthenticated or IdentityUnavailable if the validation failed. Raises Forbidden if the
    token is not for a project.
    """
    _raise_error(request)
    headers = request.headers
    project_id = headers.get("X-Project-Id")
    if not project_id:
        raise Forbidden(
            "This token is not scoped to a project, but reservations belong to projects: get a"
            " token for a project (OS_PROJECT_NAME or OS_PROJECT_ID)"
        )
    return Caller(
        headers["X-User-Id"],
        project_id,
        _names(headers.get("X-Roles")),
        headers["X-Auth-Token"],
        _names(headers.get("X-Service-Roles")),
        _expiry(request.environ.get("keystone.token_info") or {}),
        headers.get("X-User-Name"),
        headers.get("X-Project-Name"),
    )


def _raise_error(request: Request) -> None:
    error: ClimateError | None = request.environ[_ERROR]
    if error is not None:
        raise error


def check_options(conf: ConfigOpts) -> None:
    """Raise Misconfigured if the API cannot check tokens with the options of Keystone."""
    if conf.api.auth_strategy == "keystone":
        _gate(None, conf, ())


def _gate(app: Any, conf: ConfigOpts, open_paths: Collection[str]) -> "_Gate":  # noqa: ANN401 - WSGI
    try:
        return _Gate(app, conf, open_paths)
    except ClientException as error:
        raise Misconfigured(f"[{TOKEN_CHECKER}]: {error}") from error


def _expiry(token_info: Mapping[str, Any]) -> datetime | None:
    try:
        expires_at = datetime.fromisoformat(token_info["token"]["expires_at"])
    except (LookupError, TypeError, ValueError):
        return None
    return expires_at if expires_at.tzinfo else expires_at.replace(tzinfo=UTC)


def _names(joined: str | None) -> tuple[str, ...]:
    return tuple(name.strip().lower() for name in (joined or "").split(",") if name.strip())


class _Gate(AuthProtocol):  # type: ignore[misc]  # keystonemiddleware is untyped
    """keystonemiddleware's token check, changed to store errors instead of answering with them.

    climate itself then renders the error response.
    """

    def __init__(self, app: Any, conf: ConfigOpts, open_paths: Collection[str]) -> None:  # noqa: ANN401
        # delay_auth_decision=True would report an unreachable Keystone as an invalid token.
        super().__init__(app, {"oslo_config_config": conf, "delay_auth_decision": False})
        self._open_path = path_pattern(open_paths)
        section = conf[conf[TOKEN_CHECKER].auth_section or TOKEN_CHECKER]
        if not section.auth_type:
            raise Misconfigured(
                f"[{TOKEN_CHECKER}] auth_type is not set, but [api] auth_strategy = keystone needs"
                " a user who may check tokens"
            )
        if conf[TOKEN_CHECKER].memcached_servers and not find_spec("memcache"):
            raise Misconfigured(
                f"[{TOKEN_CHECKER}] memcached_servers needs python-memcached, which is absent:"
                " install it, or install climate with the extra 'memcached'"
            )
        self._uri = conf[TOKEN_CHECKER].www_authenticate_uri or getattr(section, "auth_url", None)

    @property
    def www_authenticate_uri(self) -> str | None:
        """The configured address at which callers without a token can get one from Keystone.

        Without this override, keystonemiddleware could query Keystone for the address.
        """
        return self._uri

    def process_request(self, request: Any) -> None:  # noqa: ANN401 - a WebOb request
        """Validate the token of the request; store the error, or None, in the WSGI environment.

        On paths that need no identity, skip the validation, so that a slow Keystone does not delay
        health checks. Exception: ``GET /console/session`` validates the session's token.
        """
        environ = request.environ
        environ[_IS_OPEN] = self._open_path.fullmatch(environ["PATH_INFO"]) is not None
        environ[_ERROR] = environ.get(SESSION_ERROR)
        if environ[_ERROR] is None and (environ.get(CHECKS_TOKEN) or not environ[_IS_OPEN]):
            environ[_ERROR] = self._validate(request)

    def _validate(self, request: Any) -> ClimateError | None:  # noqa: ANN401 - a WebOb request
        for name in _TOKEN_HEADERS:
            if not _TOKEN.fullmatch(request.headers.get(name, "none")):
                request.headers[name] = "malformed"
        try:
            super().process_request(request)
        except HTTPUnauthorized:
            return Unauthenticated("The request you have made requires authentication.")
        except (ClientException, HTTPServiceUnavailable) as error:
            LOG.warning("Keystone cannot validate a token: %s", error)
            return IdentityUnavailable(
                "Keystone does not answer, so your token cannot be checked: try again later"
            )
        return None
