"""Authentication: find out who sends a request.

With ``[api] auth_strategy = keystone``, keystonemiddleware strips the identity headers that the
client sent, validates the token with Keystone and sets the headers again. climate sends the error
answers itself: discovery needs no token, errors have the shape of the API version that was called,
and an unreachable Keystone differs from an invalid token.
Without authentication the token names the caller: ``user:project[:role,...]``.
"""

import ipaddress
import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any

from flask import Flask, request
from keystoneauth1.exceptions import ClientException
from keystonemiddleware.auth_token import AuthProtocol
from oslo_config.cfg import ConfigOpts
from webob.exc import HTTPServiceUnavailable, HTTPUnauthorized
from werkzeug import Request

from climate.config.registry import TOKEN_CHECKER, Misconfigured
from climate.core.errors import ClimateError, Forbidden, IdentityUnavailable, Unauthenticated

_LONGEST = 255


@dataclass(frozen=True, slots=True)
class Caller:
    """The identity behind a request."""

    user_id: str
    project_id: str
    roles: tuple[str, ...]
    # Those of the service that passes the request on, if it says who it is.
    service_roles: tuple[str, ...] = ()
    # Of the request, if it was checked; for as long as the request lasts.
    token: str | None = field(default=None, repr=False)
    # When the token is one no more, if it ever ends.
    expires_at: datetime | None = None

    def credentials(self) -> dict[str, object]:
        """Return what oslo.policy compares rules with."""
        return {
            "user_id": self.user_id,
            "project_id": self.project_id,
            "roles": list(self.roles),
            "service_roles": list(self.service_roles),
        }


Identify = Callable[[Request], Caller]

_ADMIN = Caller("admin", "admin", ("admin", "member", "reader"))
_ORDINARY = ("member", "reader")
# What keystoneauth sends where there is none: `openstack --os-auth-type none`.
_NOT_USED = "notused"


def by_token_text(request: Request) -> Caller:
    """Believe the token; no token is an admin, no roles are those of an ordinary member.

    Raises Unauthenticated for a token of another form.
    """
    token = request.headers.get("X-Auth-Token")
    if token in {None, _NOT_USED}:
        return _ADMIN
    user, _, rest = token.partition(":")
    project, _, roles = rest.partition(":")
    is_storable = "\x00" not in token and max(len(user), len(project)) <= _LONGEST
    if not (user and project and is_storable):
        raise Unauthenticated("X-Auth-Token must be user:project or user:project:role,role...")
    named = tuple(role.strip().lower() for role in roles.split(",") if role.strip())
    return Caller(user, project, named or _ORDINARY)


def without_authentication(conf: ConfigOpts) -> Identify:
    """Return how callers are identified where nobody checks it: by default, on this machine."""
    if conf.api.serve_unauthenticated_to_the_network:
        return by_token_text
    return _only_here


def _only_here(request: Request) -> Caller:
    """Refuse callers on other machines, whatever server brought them here."""
    if request.remote_addr and not is_loopback(request.remote_addr):
        raise Forbidden(
            "There is no authentication, so only this machine is served (see [api]"
            " serve_unauthenticated_to_the_network)"
        )
    return by_token_text(request)


def is_loopback(host: str) -> bool:
    """Tell whether ``host``, an address or a name, is this machine and no other."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


LOG = logging.getLogger(__name__)

_REFUSAL = "climate.identity_refusal"
# What may be a token of any kind. The rest no server in front of Keystone need let through, and
# what that answers would look like a fault of Keystone's.
_TOKEN = re.compile(r"[!-~]{1,8000}")
_TOKEN_HEADERS = ("X-Auth-Token", "X-Storage-Token", "X-Service-Token")


def guard(app: Flask, conf: ConfigOpts, open_paths: Collection[str]) -> Identify:
    """Have ``app`` refuse all without a valid token but ``open_paths``; raises Misconfigured.

    Return how its callers are identified.
    """
    app.wsgi_app = _gate(app.wsgi_app, conf)  # type: ignore[method-assign]  # as Flask documents

    def check() -> None:
        refusal: ClimateError | None = request.environ[_REFUSAL]
        if refusal is not None and request.path not in open_paths:
            raise refusal

    app.before_request(check)
    return by_token


def by_token(request: Request) -> Caller:
    """Return whose token it is; raises Forbidden if the token is for no project."""
    headers = request.headers
    project_id = headers.get("X-Project-Id")
    if not project_id:
        raise Forbidden(
            "This token is not scoped to a project, and what is reserved belongs to one: get a"
            " token for a project (OS_PROJECT_NAME or OS_PROJECT_ID)"
        )
    return Caller(
        headers["X-User-Id"],
        project_id,
        _names(headers.get("X-Roles")),
        _names(headers.get("X-Service-Roles")),
        headers["X-Auth-Token"],
        _expiry(request.environ.get("keystone.token_info") or {}),
    )


def _expiry(token_info: Mapping[str, Any]) -> datetime | None:
    """Return when the token ends, as Keystone said, if it said so."""
    try:
        found = datetime.fromisoformat(token_info["token"]["expires_at"])
    except (LookupError, TypeError, ValueError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _names(joined: str | None) -> tuple[str, ...]:
    return tuple(name.strip().lower() for name in (joined or "").split(",") if name.strip())


def _gate(app: Any, conf: ConfigOpts) -> "_Gate":  # noqa: ANN401 - any WSGI application
    """Return ``app`` behind the middleware; raises Misconfigured."""
    try:
        return _Gate(app, conf)
    except ClientException as error:
        raise Misconfigured(f"[{TOKEN_CHECKER}]: {error}") from error


class _Gate(AuthProtocol):  # type: ignore[misc]  # keystonemiddleware is untyped
    """The middleware, except that its verdict is left for the application to give."""

    def __init__(self, app: Any, conf: ConfigOpts) -> None:  # noqa: ANN401 - any WSGI application
        # It decides, we delay: its own delay would make a missing Keystone look like a bad token.
        super().__init__(app, {"oslo_config_config": conf, "delay_auth_decision": False})
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
        """Return what to tell who has no token; never ask Keystone for it."""
        return self._uri

    def process_request(self, request: Any) -> None:  # noqa: ANN401 - a WebOb request
        """Identify the caller, or leave the reason why not in the environment."""
        request.environ[_REFUSAL] = self._refusal(request)

    def _refusal(self, request: Any) -> ClimateError | None:  # noqa: ANN401 - a WebOb request
        for name in _TOKEN_HEADERS:
            if not _TOKEN.fullmatch(request.headers.get(name, "none")):
                request.headers[name] = "malformed"
        try:
            super().process_request(request)
        except HTTPUnauthorized:
            return Unauthenticated("The request you have made requires authentication.")
        except (ClientException, HTTPServiceUnavailable) as error:
            LOG.warning("Keystone cannot be asked about a token: %s", error)
            return IdentityUnavailable(
                "Keystone does not answer, so your token cannot be checked: try again later"
            )
        return None
