"""``/console/session``: sign in, choose a project, sign out."""

from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from flask import request
from marshmallow import fields, validate

from climate.api.auth import Caller
from climate.api.call import ARRIVED_AT, Answer, Api, Call
from climate.api.route import Route
from climate.api.session import cookie, cross_site
from climate.api.session.cookie import Session
from climate.api.session.middleware import (
    PATH,
    Sessions,
    caller_of,
    current_session,
    current_sessions,
    has_unreadable_cookie,
)
from climate.api.v2 import me
from climate.api.v2.http import validation
from climate.api.v2.http.fields import Strict
from climate.core.errors import CrossSiteRequest, SignInUnavailable, Unauthenticated

_MAX_ROLES = 20
_DEFAULT_ROLES = ("member", "reader")


def _text(**kwargs: Any) -> fields.String:
    return fields.String(validate=validate.Regexp(r"(?=.*\S).{1,255}\Z"), **kwargs)


class _Choice(Strict):
    """Who a session without authentication acts as."""

    user = _text(required=True)
    project = _text(required=True)
    roles = fields.List(
        _text(), load_default=_DEFAULT_ROLES, validate=validate.Length(1, _MAX_ROLES)
    )


class _Change(Strict):
    """The project that a session changes to."""

    project = _text(required=True)


_CHOICE, _CHANGE = _Choice(), _Change()


def show(api: Api) -> Answer:
    """Return who is signed in, or how to sign in."""
    sessions = current_sessions()
    sessions.check_reach(request)
    validation.no_query()
    session = current_session()
    if session is None:
        headers = _cookie("") if has_unreadable_cookie() else {}
        return _signed_out(sessions), 200, headers
    return _signed_in(api, session, api.identify(request)), 200


def create(api: Api) -> Answer:
    """Sign in; the answer is that of ``show``."""
    sessions = _for_change()
    if cookie.is_plain_http(request.headers["Origin"]):
        raise CrossSiteRequest("Sign in over https: browsers keep no session over plain http")
    data = validation.load(_CHOICE, validation.anonymous_body())
    session = Session(
        csrf=cookie.new_secret(),
        expires_at=_arrived() + sessions.lifetime,
        user=data["user"],
        project=data["project"],
        roles=tuple(role.strip().lower() for role in data["roles"]),
    )
    return _started(api, session, sessions)


def update(api: Api) -> Answer:
    """Change the project; the answer is that of ``show``."""
    sessions = _for_change()
    session = _own_session()
    data = validation.load(_CHANGE, validation.anonymous_body())
    return _started(api, replace(session, project=data["project"]), sessions)


def delete(_api: Api) -> Answer:
    """Sign out; without a session, do nothing."""
    _for_change()
    validation.no_query()
    session = current_session()
    if session is not None:
        cross_site.check(request.environ, session.csrf)
    return None, 204, _cookie("")


def _for_change() -> Sessions:
    """Return what requests share; raises CrossSiteRequest, ForeignOrigin."""
    sessions = current_sessions()
    cross_site.check_origin(request.environ)
    sessions.check_reach(request)
    return sessions


def _own_session() -> Session:
    """Return the session of a request that may change it; raises Unauthenticated."""
    session = current_session()
    if session is None:
        raise Unauthenticated("Your session has ended: sign in to the console again")
    cross_site.check(request.environ, session.csrf)
    return session


def _started(api: Api, session: Session, sessions: Sessions) -> Answer:
    if sessions.keys is None:
        raise SignInUnavailable(
            "Nobody can sign in: the operator must set [console] session_key_file"
        )
    value = cookie.encrypt(session, sessions.keys.fernet(), _arrived())
    return _signed_in(api, session, caller_of(session)), 200, _cookie(value)


def _signed_out(sessions: Sessions) -> dict[str, Any]:
    return {
        "signed_in": False,
        "authentication": sessions.authentication,
        "csrf": None,
        "me": None,
        "user": None,
        "project": None,
        "projects": [],
    }


def _signed_in(api: Api, session: Session, caller: Caller) -> dict[str, Any]:
    mine = {**me.body(Call(api, caller, _arrived())), "csrf": session.csrf}
    return {
        "signed_in": True,
        "authentication": mine["authentication"],
        "csrf": session.csrf,
        "me": mine,
        "user": mine["user"],
        "project": mine["project"],
        "projects": [],
    }


def _cookie(value: str) -> dict[str, str]:
    environ = request.environ
    host = environ.get("HTTP_HOST", "")
    return {"Set-Cookie": cookie.header(value, environ["wsgi.url_scheme"], host)}


def _arrived() -> datetime:
    return cast("datetime", request.environ[ARRIVED_AT])


ROUTES = [
    Route("GET", PATH, show),
    Route("POST", PATH, create),
    Route("PUT", PATH, update),
    Route("DELETE", PATH, delete),
]
