"""Keystone trusts: with a trust, climate acts as a user after the user's request is over.

climate creates the trust with the token of the request that creates or changes the lease. A trust
is for one project, and valid while the user is enabled and has the roles that the trust delegates.
climate marks its trusts, because other services may use the same service user.
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1.session import Session
from oslo_config.cfg import ConfigOpts

from climate.core.errors import BackendUnavailable, Forbidden, Unauthenticated
from climate.plugins.base import Requester
from climate.plugins.openstack import session as openstack_session
from climate.plugins.openstack.session import answers

# The key in Keystone's record of a trust; the value is the deployment and the time of creation.
MARK = "climate"
_TRUSTS = "/OS-TRUST/trusts"
_TRUST = "OS-TRUST:trust"
_DELEGATED = {
    _TRUST: "a trust",
    "application_credential": "an application credential",
    "OS-OAUTH1": "an OAuth access token",
}


class DeadTrust(RuntimeError):
    """Raised if climate cannot act as the lease's user, because the trust is gone or invalid."""


@dataclass(frozen=True, slots=True)
class Trust:
    """A trust that this installation of climate created, as Keystone stores it.

    With the trust, climate can act as the user ``user_id`` in the project ``project_id``.
    """

    id: str
    user_id: str
    project_id: str
    made_at: datetime


class Trusts:
    """Creates, uses and deletes trusts that let climate's service user act as other users."""

    def __init__(self, conf: ConfigOpts) -> None:
        self._conf = conf
        self._deployment = _deployment(conf)
        self._session = openstack_session.make_session(conf)
        self._keystone = openstack_session.keystone(self._session)

    def make(self, requester: Requester, now: datetime) -> str:
        """Create a trust that lets climate act as the requester in the requester's project.

        ``now`` is stored in the trust as its creation time. Returns the trust's id. Raises
        Forbidden if Keystone does not allow this with the requester's kind of token,
        Unauthenticated if the token has expired, and BackendUnavailable if another error occurs.
        """
        try:
            with answers("Keystone"):
                roles = self._roles(requester)
                trust = {
                    "trustor_user_id": requester.user_id,
                    "trustee_user_id": self._session.get_user_id(),
                    "project_id": requester.project_id,
                    "impersonation": True,
                    "roles": roles,
                    MARK: f"{self._deployment} {now.isoformat()}",
                }
                answer = self._keystone.post(
                    _TRUSTS,
                    json={"trust": trust},
                    headers={"X-Auth-Token": requester.token or ""},
                    authenticated=False,
                )
                return str(answer.json()["trust"]["id"])
        except BackendUnavailable as error:
            match error.__cause__:
                case keystone_errors.Forbidden():
                    raise Forbidden(
                        f"Keystone does not let you create a trust for climate: {error.__cause__}"
                    ) from None
                case keystone_errors.NotFound() | keystone_errors.Unauthorized():
                    raise Unauthenticated("Your token has expired: get a new one") from None
            raise

    def _roles(self, requester: Requester) -> list[dict[str, str]]:
        """Return the roles of the requester's token; raise Forbidden if the token is delegated."""
        subject = {"X-Subject-Token": requester.token or ""}
        token = self._keystone.get("/auth/tokens", headers=subject).json()["token"]
        for key, origin in _DELEGATED.items():
            if key in token or key in token["methods"]:
                raise Forbidden(
                    "This lease needs a Keystone trust, which lets climate act as you later."
                    f" Keystone does not allow this with a token from {origin}: send the request"
                    " with a token of your own (from your password, for instance)"
                )
        return [{"id": role["id"]} for role in token["roles"]]

    def revoke(self, trust_id: str) -> None:
        """Delete a trust, if it exists. Raises BackendUnavailable if the request fails."""
        with answers("Keystone"), suppress(keystone_errors.NotFound):
            self._keystone.delete(f"{_TRUSTS}/{trust_id}")

    def session(self, trust_id: str) -> Session:
        """Return an authenticated session that acts as the user who created the trust.

        Raises DeadTrust if Keystone does not accept the trust, and BackendUnavailable if Keystone
        does not answer or does not accept climate's own user.
        """
        session = openstack_session.make_session(self._conf, trust_id)
        with answers("Keystone"):
            try:
                session.get_token()
            except (keystone_errors.Forbidden, keystone_errors.NotFound):
                raise _dead_trust() from None
            except keystone_errors.Unauthorized:
                # Either the trust or climate's own credentials are invalid. This tests the latter.
                self._session.invalidate()
                self._session.get_token()
                raise _dead_trust() from None
        return session

    def token(self, trust_id: str) -> str:
        """Return a token of the user who created the trust. Raises the errors of ``session``."""
        return str(self.session(trust_id).get_token())

    def check(self, trust_id: str) -> None:
        """Raise DeadTrust if climate cannot use the trust any more.

        Raises BackendUnavailable if Keystone does not answer.
        """
        self.session(trust_id)

    def find_all(self) -> list[Trust]:
        """Return the trusts of this deployment of climate.

        Other deployments may use the same service user; their trusts are left out.
        """
        with answers("Keystone"):
            query = {"trustee_user_id": self._session.get_user_id()}
            trusts = self._keystone.get(_TRUSTS, params=query).json()["trusts"]
        return [
            Trust(trust["id"], trust["trustor_user_id"], trust["project_id"], made_at)
            for trust in trusts
            if (made_at := self._made_at(trust)) is not None
        ]

    def _made_at(self, trust: Mapping[str, Any]) -> datetime | None:
        """Return when a trust was created (aware time); None if another deployment created it."""
        deployment, _, moment = str(trust.get(MARK, "")).partition(" ")
        if deployment != self._deployment:
            return None
        with suppress(ValueError):
            made_at = datetime.fromisoformat(moment)
            return made_at if made_at.tzinfo else None
        return None


def _deployment(conf: ConfigOpts) -> str:
    """Return an id of this deployment of climate, derived from the address of its database."""
    url = urlsplit(conf.database.connection)
    where = f"{url.hostname}:{url.port}{url.path}"  # without the password
    return hashlib.sha256(where.encode()).hexdigest()[:16]


def _dead_trust() -> DeadTrust:
    return DeadTrust(
        "Keystone no longer lets climate act as the lease's user: the user or the project is"
        " disabled or deleted, the user lost a role, or the trust was deleted. If the user changes"
        " the lease (an empty PATCH is enough), climate creates a new trust"
    )
