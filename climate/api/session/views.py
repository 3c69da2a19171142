"""The routes of ``/console/session``: sign in, choose a project, sign out."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, cast

from flask import request

from climate.api.auth import Caller
from climate.api.call import ARRIVED_AT, Answer, Api, Call
from climate.api.route import Route
from climate.api.session import cookie, cross_site
from climate.api.session.cookie import Session
from climate.api.session.directory import Outcome, Project, short_text
from climate.api.session.keys import Keys
from climate.api.session.middleware import (
    PATH,
    Sessions,
    current_session,
    current_sessions,
    has_unreadable_cookie,
)
from climate.api.v2 import me
from climate.api.v2.http import validation
from climate.api.v2.http.fields import Strict
from climate.core.errors import (
    Forbidden,
    IdentityUnavailable,
    SessionTooLarge,
    SignInUnavailable,
    Unauthenticated,
)


class _Change(Strict):
    """The body of a request to change the project of the session: the id of the new project."""

    project = short_text(required=True)


_CHANGE = _Change()


def show(api: Api) -> Answer:
    """Return the signed-in user and project. If no user is signed in, return how to sign in."""
    sessions = current_sessions()
    sessions.check_reach(request)
    validation.no_query()
    session = current_session()
    if session is None:
        headers = _cookie("") if has_unreadable_cookie() else {}
        return _signed_out(sessions), 200, headers
    try:
        if session.is_choosing:
            return _choosing(sessions, session, sessions.directory.projects(session)), 200
        caller = api.identify(request)
    except Unauthenticated:  # the token has expired, or was revoked
        return _signed_out(sessions), 200, _cookie("")
    return _signed_in(api, session, caller, _known_projects(sessions, session)), 200


def create(api: Api) -> Answer:
    """Sign in, and set the cookie. The answer has the same body as ``GET /console/session``."""
    sessions = _for_change()
    if cookie.is_plain_http(request.headers["Origin"]):
        raise Forbidden("Sign in over https: browsers keep no session of this site over http")
    body = validation.anonymous_body()
    _keys(sessions)  # before Keystone issues a token
    return _begin(api, sessions, sessions.directory.start(body, request.remote_addr or "", _now()))


def update(api: Api) -> Answer:
    """Change the project of the session.

    The answer has the same body as ``GET /console/session``, and sets the new cookie.
    """
    sessions = _for_change()
    session = current_session()
    if session is None:
        raise Unauthenticated("Your session has ended: sign in to the console again")
    cross_site.check(request.environ, session.csrf)
    project = validation.load(_CHANGE, validation.anonymous_body())["project"]
    return _begin(api, sessions, sessions.directory.change(session, project, _now()))


def delete(_api: Api) -> Answer:
    """Sign out. Without a session, do nothing."""
    sessions = _for_change()
    validation.no_query()
    session = current_session()
    if session is not None:
        cross_site.check(request.environ, session.csrf)
        sessions.directory.end(session)
    return None, 204, _cookie("")


def _for_change() -> Sessions:
    """Check that the current request may change a session; return the shared ``Sessions``.

    Raises CrossSiteRequest if a page of another site sent the request. Without authentication, also
    raises Forbidden or ForeignOrigin if the request does not come from this machine.
    """
    sessions = current_sessions()
    cross_site.check_origin(request.environ)
    sessions.check_reach(request)
    return sessions


def _keys(sessions: Sessions) -> Keys:
    if sessions.keys is None:
        raise SignInUnavailable(
            "Users cannot sign in: the operator must set [console] session_key_file"
        )
    return sessions.keys


def _begin(api: Api, sessions: Sessions, outcome: Outcome) -> Answer:
    """Return the answer to a sign-in or a change of project, with the cookie of the new session.

    If the session is too large for a cookie, end it and raise SessionTooLarge.
    """
    session = outcome.session
    try:
        value = cookie.encrypt(session, _keys(sessions).fernet(), _now())
    except SessionTooLarge:
        sessions.directory.end(session)
        raise
    headers = _cookie(value)
    if outcome.caller is None:
        return _choosing(sessions, session, outcome.projects), 200, headers
    projects = _known_projects(sessions, session)
    return _signed_in(api, session, outcome.caller, projects), 200, headers


def _known_projects(sessions: Sessions, session: Session) -> Sequence[Project]:
    """Return the projects to which the user can change.

    If Keystone does not answer, or rejects the session's token, return an empty sequence: the list
    is not essential for the answer.
    """
    try:
        return sessions.directory.projects(session)
    except (IdentityUnavailable, Unauthenticated):
        return ()


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


def _choosing(sessions: Sessions, session: Session, projects: Sequence[Project]) -> dict[str, Any]:
    choice = [asdict(project) for project in projects]
    return {**_signed_out(sessions), "csrf": session.csrf, "choose_project": choice}


def _signed_in(
    api: Api, session: Session, caller: Caller, projects: Sequence[Project]
) -> dict[str, Any]:
    mine = {**me.body(Call(api, caller, _now())), "csrf": session.csrf}
    return {
        "signed_in": True,
        "authentication": mine["authentication"],
        "csrf": session.csrf,
        "me": mine,
        "user": mine["user"],
        "project": mine["project"],
        "projects": [asdict(project) for project in projects],
    }


def _cookie(value: str) -> dict[str, str]:
    environ = request.environ
    host = environ.get("HTTP_HOST", "")
    return {"Set-Cookie": cookie.header(value, environ["wsgi.url_scheme"], host)}


def _now() -> datetime:
    """Return when the request arrived, in UTC."""
    return cast("datetime", request.environ[ARRIVED_AT])


ROUTES = [
    Route("GET", PATH, show),
    Route("POST", PATH, create),
    Route("PUT", PATH, update),
    Route("DELETE", PATH, delete),
]
