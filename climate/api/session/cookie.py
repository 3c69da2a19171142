"""The session cookie: its name, its attributes, and its encrypted and authenticated content.

The server stores no session. To read a cookie that another process made, a process needs only the
same keys.
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
    """Who is signed in until ``expires_at`` (UTC), as the cookie stores it.

    ``csrf`` is the secret that requests must carry if they change something.

    With Keystone, ``token`` is the user's token for a project; it identifies the caller. It was
    made from ``root``, a token without a project. Keystone makes tokens for other projects from
    ``root`` only. Without authentication, ``user``, ``project`` and ``roles`` identify the caller.
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
        """Whether the user has not chosen a project yet; the session then permits only that."""
        return self.root is not None and self.token is None

    @property
    def tokens(self) -> list[str]:
        """The session's Keystone tokens; the one for a project is first."""
        return [token for token in (self.token, self.root) if token is not None]


def new_secret() -> str:
    """Return a new random secret that protects a session against cross-site requests."""
    return secrets.token_urlsafe(24)


def encrypt(session: Session, fernet: MultiFernet, now: datetime) -> str:
    """Return the session as the value of a cookie; raise SessionTooLarge if it is too long."""
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
    """Return the session in the value of a cookie, even if expired; raise UnreadableCookie."""
    try:
        content = fernet.decrypt(value.encode())
        return msgspec.json.decode(content, type=Session)
    except (InvalidToken, ValueError, msgspec.MsgspecError):
        raise UnreadableCookie from None


def is_secure(scheme: str, host: str) -> bool:
    """Return whether browsers may send the cookie over https only.

    This is so except on loopback over http. ``scheme`` is the scheme of the connection to this
    server; a proxy may speak https to the browser and http to this server.
    """
    return scheme == "https" or not names_this_machine(host)


def name(scheme: str, host: str) -> str:
    """Return the name of the cookie, which depends on whether it is for https only."""
    return f"{_PREFIX}{_NAME}" if is_secure(scheme, host) else _NAME


def header(value: str, scheme: str, host: str) -> str:
    """Return the Set-Cookie header; an empty ``value`` deletes the cookie."""
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
    """Return whether browsers reject the cookie on pages of ``origin``: http, not on loopback."""
    parts = urlsplit(origin)
    return parts.scheme == "http" and not names_this_machine(parts.netloc)
