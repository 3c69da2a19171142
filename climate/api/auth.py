"""Who is calling. Without authentication the token itself says so: ``user:project[:role,...]``.

What Keystone says is in ``keystone.py``.
"""

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from oslo_config.cfg import ConfigOpts
from werkzeug import Request

from climate.core.errors import Forbidden, Unauthenticated

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
