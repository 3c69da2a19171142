"""Client of Keystone for sessions: gets a token, lists a user's projects, revokes a token.

The address and the TLS options are those of ``[keystone_authtoken]``. Passwords are neither stored
nor logged: keystoneauth does not log the requests for tokens.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from keystoneauth1.access import AccessInfoV3
from keystoneauth1.exceptions import (
    AuthorizationFailure,
    ClientException,
    HttpError,
    MissingAuthMethods,
)
from keystoneauth1.identity import v3
from keystoneauth1.session import Session
from oslo_config.cfg import ConfigOpts

from climate.api.session.directory import Project
from climate.config.registry import TOKEN_CHECKER
from climate.core.errors import IdentityUnavailable, SignInFailed, Unauthenticated

LOG = logging.getLogger(__name__)

# The statuses of a Keystone, or of a proxy, that cannot judge the request now.
_BUSY = {408, 425, 429}
_SERVER_ERRORS = 500
_V3, _DEFAULT_DOMAIN = "/v3", "default"
_INVALID = "The token of your session is not valid any more"


@dataclass(frozen=True, slots=True)
class Token:
    """A Keystone token, the user and project that it identifies, and when it expires (UTC)."""

    text: str = field(repr=False)
    expires_at: datetime
    user_id: str
    user_name: str | None
    project_id: str | None
    project_name: str | None
    roles: tuple[str, ...]


class Keystone:
    """A client of Keystone. Several threads can use it at the same time."""

    def __init__(self, conf: ConfigOpts) -> None:
        """Read the options in ``[keystone_authtoken]``, which keystonemiddleware has registered."""
        options = conf[TOKEN_CHECKER]
        url = conf[options.auth_section or TOKEN_CHECKER].auth_url.rstrip("/")
        self._url = url if url.endswith(_V3) else f"{url}{_V3}"
        self._timeout = options.http_connect_timeout
        self._verify = False if options.insecure else options.cafile or True
        both = options.certfile and options.keyfile
        self._certificate = (options.certfile, options.keyfile) if both else options.certfile

    def by_password(self, user: str, domain: str | None, password: str) -> Token:
        """Return a token without a project for the user with this name and password.

        ``domain`` is the name of the user's domain; None means Keystone's default domain. Raises
        SignInFailed, IdentityUnavailable.
        """
        return self._token(
            v3.Password(
                self._url,
                username=user,
                password=password,
                user_domain_name=domain,
                user_domain_id=None if domain else _DEFAULT_DOMAIN,
                unscoped=True,
            )
        )

    def by_credential(self, id_: str, secret: str) -> Token:
        """Return a token for an application credential, which belongs to one project.

        Raises SignInFailed, IdentityUnavailable.
        """
        return self._token(
            v3.ApplicationCredential(
                self._url, application_credential_id=id_, application_credential_secret=secret
            )
        )

    def by_token(self, token: str, project_id: str) -> Token:
        """Return a new token for the project ``project_id``.

        ``token`` must be a token without a project: recent releases of Keystone make new tokens
        only from such tokens. Both tokens expire at the same time. Raises SignInFailed,
        IdentityUnavailable.
        """
        return self._token(v3.Token(self._url, token, project_id=project_id))

    def projects(self, token: str) -> Sequence[Project]:
        """Return the projects in which the user of the token has a role, sorted by name.

        Raises Unauthenticated, IdentityUnavailable.
        """
        with (
            self._session() as session,
            _errors(Unauthenticated(_INVALID)),
        ):
            answer = session.get(
                f"{self._url}/auth/projects", headers={"X-Auth-Token": token}, authenticated=False
            )
            found = [
                Project(item["id"], item["name"], item["domain_id"])
                for item in answer.json()["projects"]
            ]
        return sorted(found, key=lambda project: (project.name, project.id))

    def revoke(self, token: str) -> None:
        """Revoke a token.

        Raises Unauthenticated if the token is not valid any more, and IdentityUnavailable if
        Keystone does not answer.
        """
        headers = {"X-Auth-Token": token, "X-Subject-Token": token}
        with (
            self._session() as session,
            _errors(Unauthenticated(_INVALID)),
        ):
            session.delete(f"{self._url}/auth/tokens", headers=headers, authenticated=False)

    def _token(self, method: v3.Auth) -> Token:
        failed = SignInFailed("Keystone did not accept what you signed in with")
        with self._session() as session, _errors(failed):
            return _read(method.get_auth_ref(session))

    @contextmanager
    def _session(self) -> Iterator[Session]:
        """Yield a new HTTP session, so that two users never share a connection or cookies."""
        session = Session(
            verify=self._verify,
            cert=self._certificate,
            timeout=self._timeout,
            redirect=False,
            app_name="climate",
        )
        try:
            yield session
        finally:
            session.session.close()


def _read(access: AccessInfoV3) -> Token:
    """Return the token in ``access``, Keystone's answer; raise ValueError if it is incomplete."""
    if not (access.auth_token and access.expires and access.user_id):
        raise ValueError("incomplete token")
    return Token(
        access.auth_token,
        access.expires.astimezone(UTC),
        access.user_id,
        access.username,
        access.project_id,
        access.project_name,
        tuple(role.lower() for role in access.role_names or ()),
    )


@contextmanager
def _errors(rejected: Exception) -> Iterator[None]:
    """Context manager: translates errors of Keystone in the block into errors of climate.

    If Keystone rejects the request, raises ``rejected``. If Keystone does not answer, or if its
    answer is unusable, raises IdentityUnavailable.
    """
    try:
        yield
    except (AuthorizationFailure, MissingAuthMethods):
        raise rejected from None
    except ClientException as error:
        status = error.http_status if isinstance(error, HttpError) else None
        if status is not None and status < _SERVER_ERRORS and status not in _BUSY:
            raise rejected from None
        reason = type(error).__name__ if status is None else status
        raise _unavailable(reason) from None
    except (KeyError, TypeError, ValueError) as error:
        raise _unavailable(type(error).__name__) from None


def _unavailable(reason: object) -> IdentityUnavailable:
    LOG.warning("Keystone gives no usable answer to a sign-in: %s", reason)
    return IdentityUnavailable("Keystone does not answer: try again later")
