"""The interface through which users sign in, and its implementation without authentication."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from marshmallow import fields, validate

from climate.api.auth import Caller
from climate.api.session.cookie import Session, new_secret
from climate.api.v2.http import validation
from climate.api.v2.http.fields import Strict

_MAX_ROLES = 20
_DEFAULT_ROLES = ("member", "reader")


@dataclass(frozen=True, slots=True)
class Project:
    """A Keystone project that the user can choose; ``domain`` is the id of its domain."""

    id: str
    name: str
    domain: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a sign-in: a session, and the caller that it identifies.

    If ``caller`` is None, the user must first choose one of the ``projects``.
    """

    session: Session
    caller: Caller | None
    projects: Sequence[Project] = ()


class Directory(Protocol):
    """Interface of user directories, such as Keystone: they sign users in and out.

    ``now`` in the methods is when the request arrived (UTC).
    """

    def start(self, body: Mapping[str, Any], address: str, now: datetime) -> Outcome:
        """Sign a user in.

        ``body`` is the body of the request, such as a user name and a password. ``address`` is the
        IP address from which the request came. Raises InvalidInput, SignInFailed, TooManySignIns,
        Forbidden, IdentityUnavailable.
        """

    def change(self, session: Session, project_id: str, now: datetime) -> Outcome:
        """Return a session of the same user in the project ``project_id``.

        Raises Conflict if the session cannot change its project, and Forbidden if the user may not
        use the project. Raises Unauthenticated if the token of the session is not valid any more,
        and IdentityUnavailable if the directory does not answer.
        """

    def projects(self, session: Session) -> Sequence[Project]:
        """Return the projects to which the user can change.

        Return an empty sequence if the directory has no list of projects.
        """

    def end(self, session: Session) -> None:
        """End the session, for instance by revoking its tokens. Logs errors, and raises none."""


def short_text(**kwargs: Any) -> fields.String:
    """Return a schema field for a text of 1 to 255 characters that is not only white space."""
    rule = validate.Regexp(r"(?=.*\S).{1,255}\Z", error="This must have 1 to 255 characters.")
    return fields.String(validate=rule, **kwargs)


class _Choice(Strict):
    """The body of a sign-in without authentication: the user, project and roles to act as."""

    user = short_text(required=True)
    project = short_text(required=True)
    roles = fields.List(
        short_text(), load_default=_DEFAULT_ROLES, validate=validate.Length(1, _MAX_ROLES)
    )


_CHOICE = _Choice()


class UncheckedDirectory:
    """The directory without authentication: it accepts any user name, project and roles."""

    def __init__(self, lifetime: timedelta) -> None:
        self._lifetime = lifetime

    def start(self, body: Mapping[str, Any], address: str, now: datetime) -> Outcome:  # noqa: ARG002 - as in Directory
        """Begin a session for the user, project and roles that the body names."""
        data = validation.load(_CHOICE, body)
        session = Session(
            csrf=new_secret(),
            expires_at=now + self._lifetime,
            user=data["user"],
            project=data["project"],
            roles=tuple(role.strip().lower() for role in data["roles"]),
        )
        return Outcome(session, caller_of(session))

    def change(self, session: Session, project_id: str, now: datetime) -> Outcome:  # noqa: ARG002 - as in Directory
        """Return the same session for another project; any project is allowed."""
        changed = replace(session, project=project_id)
        return Outcome(changed, caller_of(changed))

    def projects(self, session: Session) -> Sequence[Project]:  # noqa: ARG002 - as in Directory
        """Return an empty list, because the user can choose any project."""
        return ()

    def end(self, session: Session) -> None:
        """Do nothing: the session is stored only in the cookie, which the caller deletes."""


def caller_of(session: Session) -> Caller:
    """Return the caller that a session without authentication identifies."""
    return Caller(session.user, session.project, session.roles, expires_at=session.expires_at)
