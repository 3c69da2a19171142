"""The session cookie: its name, its attributes, and its encrypted and authenticated content.

The session is stored only in the cookie, not on the server. Any process that has the same keys can
read it.
"""

import secrets
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlsplit

import msgspec
from cryptography.fernet import InvalidToken, MultiFernet
from werkzeug.http import dump_cookie

from climate.api.auth import names_this_machine
from climate.core.errors import SessionTooLarge

# Browsers keep cookies up to 4096 bytes; some count the attributes.
_MAX_BYTES = 3900
# The prefix makes browsers reject the cookie from another host, another path or plain http.
_NAME, _PREFIX = "climate", "__Host-"


class UnreadableCookie(Exception):
    """Raised if a cookie was not made with one of the keys, or does not contain a session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A signed-in user's session, as the cookie stores it. It ends at ``expires_at`` (UTC).

    ``csrf`` is a secret. Requests other than GET and HEAD must repeat it in a header.

    With Keystone, ``token`` is the user's token for the chosen project, and identifies the caller.
    ``root`` is the user's token without a project. When the user changes to another project,
    Keystone makes a new ``token`` from ``root``. Without authentication, ``user``, ``project`` and
    ``roles`` identify the caller.
    """

    csrf: str = field(repr=False)
    expires_at: datetime
    token: str | None = field(default=None, repr=False)
    root: str | None = field(default=None, repr=False)
    user: str = ""
    project: str = ""
    roles: tuple[str, ...] = ()

    @property
    def is_choosing(self) -> bool:
        """Whether the user must still choose a project.

        Until then, the session permits nothing else.
        """
        return self.root is not None and self.token is None

    @property
    def tokens(self) -> list[str]:
        """The session's Keystone tokens. The token for a project is first, then the ``root``."""
        return [token for token in (self.token, self.root) if token is not None]


def new_secret() -> str:
    """Return a new random secret that protects a session against cross-site requests."""
    return secrets.token_urlsafe(24)


def encrypt(session: Session, fernet: MultiFernet, now: datetime) -> str:
    """Return the session, encrypted with ``fernet``, as the value of a cookie.

    Raises SessionTooLarge if the value is too long for a cookie.
    """
    content = msgspec.json.encode(session)
    value = fernet.encrypt_at_time(content, int(now.timestamp())).decode()
    if len(value) > _MAX_BYTES:
        if not session.tokens:
            raise SessionTooLarge("The user, the project and the roles are too long for a cookie")
        raise SessionTooLarge(
            f"Keystone issued tokens of {sum(map(len, session.tokens))} bytes, which are too large"
            " for a cookie: the console needs a Keystone with Fernet or JWS tokens"
        )
    return value


def decrypt(value: str, fernet: MultiFernet) -> Session:
    """Return the session that is encrypted in ``value``, the value of a cookie.

    Raises UnreadableCookie. Does not check whether the session has expired: the caller must do so.
    """
    try:
        content = fernet.decrypt(value.encode())
        return msgspec.json.decode(content, type=Session)
    except (InvalidToken, ValueError, msgspec.MsgspecError):
        raise UnreadableCookie from None


def is_secure(scheme: str, host: str) -> bool:
    """Return whether the cookie must have the attribute Secure (browsers send it over https only).

    The result is false only for plain http on a loopback host. ``scheme`` is the scheme of the
    connection to this server: behind a proxy, it can be http although the browser uses https.
    ``host`` is the Host header.
    """
    return scheme == "https" or not names_this_machine(host)


def name(scheme: str, host: str) -> str:
    """Return the name of the session cookie: ``climate`` or ``__Host-climate``.

    The name is ``climate`` if ``scheme`` (of the connection) is http and ``host`` (the Host header)
    is loopback. Otherwise it is ``__Host-climate``, which browsers accept only over https.
    """
    return f"{_PREFIX}{_NAME}" if is_secure(scheme, host) else _NAME


def header(value: str, scheme: str, host: str) -> str:
    """Return the Set-Cookie header that stores ``value``; an empty ``value`` deletes the cookie.

    ``scheme`` is the scheme of the connection, and ``host`` is the Host header of the request.
    """
    return dump_cookie(
        name(scheme, host),
        value,
        max_age=None if value else 0,
        path="/",
        secure=is_secure(scheme, host),
        httponly=True,
        samesite="Strict",
    )


def is_plain_http(origin: str) -> bool:
    """Return whether ``origin``, a header Origin, is an http URL whose host is not loopback.

    Browsers reject the session cookie from such an origin, so users cannot sign in there.
    """
    parts = urlsplit(origin)
    return parts.scheme == "http" and not names_this_machine(parts.netloc)
