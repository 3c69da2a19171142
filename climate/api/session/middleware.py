"""WSGI middleware: reads the session cookie of each request, before the token is checked.

It ignores the cookie if the request has a token header, so the cookie does not affect clients that
send tokens. It also ignores the cookie on routes that need no identity, except
``/console/session``.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Literal, cast

from flask import Flask, current_app, request
from oslo_config.cfg import ConfigOpts
from werkzeug import Request
from werkzeug.sansio.http import parse_cookie

from climate.api import auth
from climate.api.auth import CHECKS_TOKEN, SESSION_ERROR, Caller, Identify, path_pattern
from climate.api.call import ARRIVED_AT
from climate.api.session import cookie, cross_site, keys
from climate.api.session.attempts import Attempts
from climate.api.session.cookie import Session, UnreadableCookie
from climate.api.session.directory import Directory, UncheckedDirectory, caller_of
from climate.api.session.keys import Keys
from climate.api.session.keystone import Keystone
from climate.api.session.keystone_directory import KeystoneDirectory
from climate.clock import Clock
from climate.core.errors import ClimateError, CrossSiteRequest, Unauthenticated

PATH = "/console/session"
_EXTENSION = "climate.sessions"
_SESSION = "climate.session"
_SIGN_IN = "Your session has ended: sign in to the console again"
_CHOOSE = "Your session has no project yet: choose one in the console"


@dataclass(frozen=True, slots=True)
class Sessions:
    """The objects that handle sessions; all requests share them.

    ``keys`` encrypts the cookies. If it is None, no user can sign in.
    """

    authentication: Literal["none", "keystone"]
    keys: Keys | None
    directory: Directory
    # Checks that this machine may serve the request, if there is no authentication.
    check_reach: Callable[[Request], None]

    @property
    def token_headers(self) -> tuple[str, ...]:
        """The WSGI names of the headers that can contain a token.

        If a request has one of these headers, its cookie is ignored.
        """
        if self.authentication == "none":
            return ("HTTP_X_AUTH_TOKEN",)
        return ("HTTP_X_AUTH_TOKEN", "HTTP_X_STORAGE_TOKEN")  # keystonemiddleware reads both


def install(
    app: Flask, conf: ConfigOpts, clock: Clock, identify: Identify, open_paths: Collection[str]
) -> Identify:
    """Make ``app`` accept session cookies; return a function that identifies a request's caller.

    The returned function uses the session, if the request has one; otherwise it calls ``identify``.
    ``open_paths`` are the routes that need no identity. Raises Misconfigured if the file
    with the keys for cookies is unusable.
    """
    sessions = Sessions(
        "none" if conf.api.auth_strategy == "noauth" else "keystone",
        keys.for_config(conf),
        _directory(conf, clock),
        _reach_check(conf),
    )
    app.extensions[_EXTENSION] = sessions
    app.wsgi_app = _Middleware(app.wsgi_app, sessions, path_pattern(open_paths))  # type: ignore[method-assign]
    return _by_session_or(identify)


def _directory(conf: ConfigOpts, clock: Clock) -> Directory:
    lifetime = timedelta(hours=conf.console.session_hours)
    if conf.api.auth_strategy == "noauth":
        return UncheckedDirectory(lifetime)
    # A sign-in occupies a thread while Keystone works on it.
    attempts = Attempts(max(1, conf.api.threads // 4))
    return KeystoneDirectory(Keystone(conf), attempts, lifetime, clock.elapsed)


def _reach_check(conf: ConfigOpts) -> Callable[[Request], None]:
    if conf.api.auth_strategy == "keystone" or conf.api.serve_unauthenticated_to_the_network:
        return lambda _: None
    return partial(auth.check_local, conf.host)


def current_sessions() -> Sessions:
    """Return the ``Sessions`` that ``install`` has created for the current application."""
    return cast("Sessions", current_app.extensions[_EXTENSION])


def current_session() -> Session | None:
    """Return the session in the cookie of the current request, or None."""
    return request.environ.get(_SESSION)


def has_unreadable_cookie() -> bool:
    """Return whether the current request has a session cookie that is invalid, such as expired."""
    return SESSION_ERROR in request.environ


def _by_session_or(identify: Identify) -> Identify:
    def by_session_or_token(request: Request) -> Caller:
        error: ClimateError | None = request.environ.get(SESSION_ERROR)
        if error is not None:
            raise error
        caller = identify(request)
        session: Session | None = request.environ.get(_SESSION)
        if session is None:
            return caller
        if session.token is None:
            return caller_of(session)
        ends = (moment for moment in (session.expires_at, caller.expires_at) if moment is not None)
        return replace(caller, expires_at=min(ends))

    return by_session_or_token


class _Middleware:
    """Reads the cookie of a request; stores the session, or an error, in the WSGI environment."""

    def __init__(
        self, app: Callable[..., Any], sessions: Sessions, open_path: re.Pattern[str]
    ) -> None:
        self._app, self._sessions, self._open_path = app, sessions, open_path

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:  # noqa: ANN401 - WSGI
        path = environ["PATH_INFO"]
        if path == PATH or not self._open_path.fullmatch(path):
            try:
                self._read(environ, is_own_route=path == PATH)
            except (Unauthenticated, CrossSiteRequest) as error:
                environ[SESSION_ERROR] = error
        return self._app(environ, start_response)

    def _read(self, environ: dict[str, Any], *, is_own_route: bool) -> None:
        if any(name in environ for name in self._sessions.token_headers):
            return
        name = cookie.name(environ["wsgi.url_scheme"], environ.get("HTTP_HOST", ""))
        # Without decoding: another application may have set cookies that are not UTF-8.
        value = parse_cookie(environ.get("HTTP_COOKIE")).get(name)
        if value is None:
            if cross_site.CSRF_KEY in environ and not is_own_route:
                raise Unauthenticated(_SIGN_IN)  # a page that outlives its session
            return
        session = self._decrypted(value, environ)
        if not is_own_route:
            if session.is_choosing:
                raise Unauthenticated(_CHOOSE)
            cross_site.check(environ, session.csrf)
        environ[_SESSION] = session
        if session.token is None:
            return
        if not is_own_route or environ["REQUEST_METHOD"] in cross_site.READ_METHODS:
            environ["HTTP_X_AUTH_TOKEN"] = session.token
            environ[CHECKS_TOKEN] = True

    def _decrypted(self, value: str, environ: dict[str, Any]) -> Session:
        if self._sessions.keys is None:
            raise Unauthenticated(_SIGN_IN)
        try:
            session = cookie.decrypt(value, self._sessions.keys.fernet())
        except UnreadableCookie:
            raise Unauthenticated(_SIGN_IN) from None
        has_token = bool(session.tokens)
        if (
            has_token != (self._sessions.authentication == "keystone")
            or session.expires_at <= environ[ARRIVED_AT]
        ):
            raise Unauthenticated(_SIGN_IN)
        return session
