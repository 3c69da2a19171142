"""Signs users of Keystone in, with a password or an application credential."""

import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from marshmallow import fields, validate

from climate.api.auth import Caller
from climate.api.session.attempts import Attempts
from climate.api.session.cookie import Session, new_secret
from climate.api.session.directory import Outcome, Project, short_text
from climate.api.session.keystone import Keystone, Token
from climate.api.v2.http import validation
from climate.api.v2.http.fields import Strict
from climate.core.errors import (
    ClimateError,
    Conflict,
    Forbidden,
    IdentityUnavailable,
    SignInFailed,
    Unauthenticated,
)

LOG = logging.getLogger(__name__)

# How long a user may take to choose a project.
_CHOICE_TIME = timedelta(minutes=10)
# Seconds for which lists of projects are kept, and how many of them.
_KEPT, _MAX_LISTS = 60.0, 1000
_CREDENTIAL = "application_credential_id"


def _secret() -> fields.String:
    return fields.String(required=True, validate=validate.Length(1, 4096), load_only=True)


class _Password(Strict):
    """The body of a sign-in with a password.

    ``project`` is the id of the project for the session. ``project`` and ``domain`` are optional.
    """

    user = short_text(required=True)
    password = _secret()
    domain = short_text(load_default=None, allow_none=True)
    project = short_text(load_default=None, allow_none=True)


class _Credential(Strict):
    """The body of a sign-in with an application credential of Keystone."""

    application_credential_id = short_text(required=True)
    application_credential_secret = _secret()


_PASSWORD, _CREDENTIALS = _Password(), _Credential()


class KeystoneDirectory:
    """The directory of the users in Keystone. Sessions contain Keystone tokens, but no password."""

    def __init__(
        self,
        keystone: Keystone,
        attempts: Attempts,
        lifetime: timedelta,
        elapsed: Callable[[], float],
    ) -> None:
        """Create the directory.

        Sessions last at most ``lifetime``. ``elapsed`` returns the seconds of a monotonic clock.
        """
        self._keystone, self._attempts = keystone, attempts
        self._lifetime, self._elapsed = lifetime, elapsed
        self._lists: OrderedDict[bytes, tuple[float, Sequence[Project]]] = OrderedDict()
        self._lock = threading.Lock()

    def start(self, body: Mapping[str, Any], address: str, now: datetime) -> Outcome:
        """Sign a user in with a password or an application credential, through Keystone.

        Raises TooManySignIns, without a request to Keystone, after too many failed sign-ins.
        """
        if _CREDENTIAL in body:
            data = validation.load(_CREDENTIALS, body)
            name = f"credential {data[_CREDENTIAL]}"
        else:
            data = validation.load(_PASSWORD, body)
            # Keystone compares names of users and domains without case, on most databases.
            name = f"user {data['user']} {data['domain'] or ''}".casefold()
        try:
            with self._attempts.attempt(address, name, self._elapsed()):
                return self._signed_in(data, now)
        except SignInFailed:
            LOG.warning("a sign-in from %s failed", address)
            raise

    def change(self, session: Session, project_id: str, now: datetime) -> Outcome:
        """Return a session in the project ``project_id``, with a new token for this project.

        The token of ``session`` for the previous project is revoked.
        """
        if session.root is None:
            raise Conflict("An application credential belongs to one project: sign in with another")
        if project_id not in {project.id for project in self._keystone.projects(session.root)}:
            raise Forbidden(f"You have no role in the project {project_id}")
        try:
            token = self._keystone.by_token(session.root, project_id)
        except SignInFailed:
            raise Forbidden(f"Keystone gives you no token for the project {project_id}") from None
        if session.token is not None:
            self._revoke(session.token)
        return self._outcome(token, session.root, now)

    def projects(self, session: Session) -> Sequence[Project]:
        """Return the projects in which the user has a role, cached for up to a minute.

        If the user signed in with an application credential, return an empty sequence: such a
        session cannot change its project.
        """
        if session.root is None:
            return ()
        key, present = hashlib.sha256(session.root.encode()).digest(), self._elapsed()
        with self._lock:
            kept = self._lists.get(key)
        if kept is not None and present - kept[0] < _KEPT:
            return kept[1]
        found = self._keystone.projects(session.root)
        with self._lock:
            self._lists[key] = (present, found)
            self._lists.move_to_end(key)
            while len(self._lists) > _MAX_LISTS:
                self._lists.popitem(last=False)
        return found

    def end(self, session: Session) -> None:
        """Revoke the session's tokens.

        If Keystone does not answer, the error is only logged; the tokens are then valid until they
        expire.
        """
        for text in session.tokens:
            self._revoke(text)

    def _signed_in(self, data: Mapping[str, Any], now: datetime) -> Outcome:
        if _CREDENTIAL in data:
            secret = data["application_credential_secret"]
            return self._outcome(self._keystone.by_credential(data[_CREDENTIAL], secret), None, now)
        root = self._keystone.by_password(data["user"], data["domain"], data["password"])
        try:
            return self._in_project(root, data["project"], now)
        except ClimateError:
            self._revoke(root.text)
            raise

    def _in_project(self, root: Token, project_id: str | None, now: datetime) -> Outcome:
        """Return a session in the project ``project_id``, with a token made from ``root``.

        ``root`` is the user's token without a project. If ``project_id`` is None, the number of
        projects in which the user has a role determines the result:

        - One project: return a session in this project.
        - Several projects: return a session without a project; the user must first choose one.
        - No project: raise Forbidden.
        """
        if project_id is None:
            projects = self._keystone.projects(root.text)
            if not projects:
                raise Forbidden("You have no role in any project: ask an administrator for one")
            if len(projects) > 1:
                expires_at = min(now + _CHOICE_TIME, root.expires_at)
                session = Session(csrf=new_secret(), expires_at=expires_at, root=root.text)
                return Outcome(session, None, projects)
            project_id = projects[0].id
        return self._outcome(self._keystone.by_token(root.text, project_id), root.text, now)

    def _outcome(self, token: Token, root: str | None, now: datetime) -> Outcome:
        if token.project_id is None:
            self._revoke(token.text)
            raise Forbidden("This identity belongs to no project, but reservations do")
        expires_at = min(now + self._lifetime, token.expires_at)
        session = Session(csrf=new_secret(), expires_at=expires_at, token=token.text, root=root)
        caller = Caller(
            token.user_id,
            token.project_id,
            token.roles,
            token.text,
            expires_at=expires_at,
            user_name=token.user_name,
            project_name=token.project_name,
        )
        return Outcome(session, caller)

    def _revoke(self, text: str) -> None:
        try:
            self._keystone.revoke(text)
        except Unauthenticated:
            pass  # it has expired, or was revoked
        except IdentityUnavailable:
            LOG.warning("Keystone did not revoke the token of a session: it works until it expires")
