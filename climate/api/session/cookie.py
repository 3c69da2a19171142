"""The session cookie: its content, encrypted and authenticated, its name and its attributes.

The server stores no session: a process needs only the keys to read the cookie of another one.
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
    """The cookie was not made with one of the keys, or is not a session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Who is signed in, until when (UTC), and the secret that state-changing requests carry.

    With Keystone, ``token`` is the user's token for a project, and identifies the caller. ``root``
    is the token without a project from which it was made: Keystone makes tokens for other
    projects only from that. Without authentication, ``user``, ``project`` and ``roles`` identify
    the caller.
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
        """Whether there is no project yet: the session only permits to choose one."""
        return self.root is not None and self.token is None

    @property
    def tokens(self) -> list[str]:
        """The tokens of Keystone, that with the project first."""
        return [token for token in (self.token, self.root) if token is not None]


def new_secret() -> str:
    """Return a secret against cross-site requests."""
    return secrets.token_urlsafe(24)


def encrypt(session: Session, fernet: MultiFernet, now: datetime) -> str:
    """Return the value of the cookie; raises SessionTooLarge."""
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
    """Return the session in the value of a cookie, expired or not; raises UnreadableCookie."""
    try:
        content = fernet.decrypt(value.encode())
        return msgspec.json.decode(content, type=Session)
    except (InvalidToken, ValueError, msgspec.MsgspecError):
        raise UnreadableCookie from None


def is_secure(scheme: str, host: str) -> bool:
    """Return whether the cookie is only for https: always, except on loopback over http.

    ``scheme`` is the scheme of the connection to this server. A proxy may speak https to the
    browser and http to this server.
    """
    return scheme == "https" or not names_this_machine(host)


def name(scheme: str, host: str) -> str:
    """Return the name of the cookie on this site."""
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
    """Return whether a page of ``origin`` cannot keep the cookie: http, and not loopback."""
    parts = urlsplit(origin)
    return parts.scheme == "http" and not names_this_machine(parts.netloc)
