"""Trusts: how a user lets us act in its name, in one project, after its request is over.

Keystone keeps them. Whoever asks for a lease that needs one makes it, with the token of the
request; with it we get tokens that are the user's, for as long as the user has the roles that it
delegated and is enabled. Ours carry a mark, as others may trust the same user of the cloud's.
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from keystoneauth1 import exceptions as refusals
from keystoneauth1.adapter import Adapter
from keystoneauth1.plugin import AUTH_INTERFACE
from keystoneauth1.session import Session
from oslo_config.cfg import ConfigOpts

from climate.core.errors import BackendUnavailable, Forbidden, Unauthenticated
from climate.plugins.base import Asker
from climate.plugins.openstack import session as openstack_session
from climate.plugins.openstack.session import answers

# The key, in Keystone's record of a trust, under which is by which climate and when it was made.
MARK = "climate"
_TRUSTS = "/OS-TRUST/trusts"
_TRUST = "OS-TRUST:trust"
_DELEGATED = {
    _TRUST: "a trust",
    "application_credential": "an application credential",
    "OS-OAUTH1": "an OAuth access token",
}


class DeadTrust(RuntimeError):
    """The user does not let us act in its name any more, or cannot."""


@dataclass(frozen=True, slots=True)
class Trust:
    """A trust of ours as Keystone knows it."""

    id: str
    user_id: str
    project_id: str
    made_at: datetime


class Trusts:
    """The trusts in us, the user of ``[service_user]``."""

    def __init__(self, conf: ConfigOpts) -> None:
        """Prepare; nothing is sent yet. Raises Misconfigured."""
        self._conf = conf
        self._deployment = _deployment(conf)
        self._session = openstack_session.make_session(conf)
        self._keystone = Adapter(
            self._session,
            service_type="identity",
            interface=AUTH_INTERFACE,  # type: ignore[arg-type]  # one that is no text
            version="3",
        )

    def make(self, asker: Asker, now: datetime) -> str:
        """Have the asker, whose token this is, trust us in its project; return the trust's id.

        Raises Forbidden if it cannot with such a token, Unauthenticated, BackendUnavailable.
        """
        try:
            with answers("Keystone"):
                roles = self._roles(asker)
                trust = {
                    "trustor_user_id": asker.user_id,
                    "trustee_user_id": self._session.get_user_id(),
                    "project_id": asker.project_id,
                    "impersonation": True,
                    "roles": roles,
                    MARK: f"{self._deployment} {now.isoformat()}",
                }
                return self._make(asker, trust)
        except BackendUnavailable as error:
            match error.__cause__:
                case refusals.Forbidden():
                    raise Forbidden(
                        f"Keystone does not let you trust climate to act as you: {error.__cause__}"
                    ) from None
                case refusals.NotFound() | refusals.Unauthorized():
                    raise Unauthenticated("Your token is over: get another") from None
            raise

    def _roles(self, asker: Asker) -> list[dict[str, str]]:
        """Return the roles of the asker's token; raises Forbidden if it is delegated itself."""
        subject = {"X-Subject-Token": asker.token or ""}
        token = self._keystone.get("/auth/tokens", headers=subject).json()["token"]
        for key, by in _DELEGATED.items():
            if key in token or key in token["methods"]:
                raise Forbidden(
                    f"For this climate must act in the cloud as you, later, and Keystone allows"
                    f" nobody to grant that by a token that was itself got by {by}: ask with a"
                    " token of your own (by password, for instance)"
                )
        return [{"id": role["id"]} for role in token["roles"]]

    def _make(self, asker: Asker, trust: Mapping[str, Any]) -> str:
        made = self._keystone.post(
            _TRUSTS,
            json={"trust": trust},
            headers={"X-Auth-Token": asker.token or ""},
            authenticated=False,
        )
        return str(made.json()["trust"]["id"])

    def revoke(self, trust_id: str) -> None:
        """Delete a trust; fine if it is gone. Raises BackendUnavailable."""
        with answers("Keystone"), suppress(refusals.NotFound):
            self._keystone.delete(f"{_TRUSTS}/{trust_id}")

    def session(self, trust_id: str) -> Session:
        """Return a session as the user who trusts us; raises DeadTrust, BackendUnavailable."""
        session = openstack_session.make_session(self._conf, trust_id)
        with answers("Keystone"):
            try:
                session.get_token()
            except (refusals.Forbidden, refusals.NotFound):
                raise _dead() from None
            except refusals.Unauthorized:
                # Keystone says the same of us; if it is not we, it is the trust.
                self._session.invalidate()
                self._session.get_token()
                raise _dead() from None
        return session

    def check(self, trust_id: str) -> None:
        """Raise DeadTrust if we cannot act by a trust at present; BackendUnavailable."""
        self.session(trust_id)

    def find_all(self) -> list[Trust]:
        """Return all trusts that carry our mark, not those of another climate with our user."""
        with answers("Keystone"):
            ours = {"trustee_user_id": self._session.get_user_id()}
            found = self._keystone.get(_TRUSTS, params=ours).json()["trusts"]
        return [
            Trust(one["id"], one["trustor_user_id"], one["project_id"], made_at)
            for one in found
            if (made_at := self._made_at(one)) is not None
        ]

    def _made_at(self, trust: Mapping[str, Any]) -> datetime | None:
        """Return when a trust of ours was made; None if it is not ours."""
        deployment, _, moment = str(trust.get(MARK, "")).partition(" ")
        if deployment != self._deployment:
            return None
        with suppress(ValueError):
            made_at = datetime.fromisoformat(moment)
            return made_at if made_at.tzinfo else None
        return None


def _deployment(conf: ConfigOpts) -> str:
    """Return what tells this climate from others that act by the same user: its database."""
    url = urlsplit(conf.database.connection)
    where = f"{url.hostname}:{url.port}{url.path}"  # nothing that is secret
    return hashlib.sha256(where.encode()).hexdigest()[:16]


def _dead() -> DeadTrust:
    return DeadTrust(
        "Keystone does not let climate act as the lease's user any more: the user or the project"
        " is disabled or gone, a role was taken from the user, or the trust was deleted. Any change"
        " of the lease by its user (an empty PATCH, too) lets climate act again"
    )
