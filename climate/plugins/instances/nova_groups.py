"""Server groups in Nova, for clients of Blazar that boot with the hint ``group``.

climate enforces the affinity of a reservation without a group. A group must belong to the project
of the lease, as Nova refuses the hint to the members of other projects. So climate creates it with
the token of the request that creates the lease, as the answer already names the group. climate
deletes it with its own rights, which do not depend on the user's roles.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions.http import Forbidden
from keystoneauth1.session import Session
from oslo_config.cfg import ConfigOpts

from climate.core.errors import Conflict
from climate.plugins.base import Requester
from climate.plugins.instances.nova_flavors import flavor_name
from climate.plugins.openstack import session
from climate.plugins.openstack.session import answers

# From this microversion on, a group has one policy instead of a list.
_MICROVERSION = "2.64"
_PATH = "/os-server-groups"


class ServerGroups:
    """Creates and deletes the server groups of reservations, which have the names of flavors."""

    def __init__(self, conf: ConfigOpts, own: Session) -> None:
        """Use the session ``own`` of climate's user, and the tokens of requests."""
        self._conf = conf
        self._own = session.adapter(conf, own, "nova", _MICROVERSION)

    def make(self, requester: Requester, reservation_id: str, policy: str) -> str:
        """Return the id of the reservation's group; create the group if it does not exist.

        ``policy`` is ``affinity`` or ``anti-affinity``. Raises Conflict if the requester has no
        token, or if the project's quota of groups is used up. Raises BackendUnavailable if Nova
        does not answer.
        """
        if requester.token is None:
            raise Conflict("climate creates a server group as you, which requires a Keystone token")
        with answers():
            nova = self._as_requester(requester.token)
            for group in _groups(nova):
                if group["name"] == flavor_name(reservation_id):
                    return str(group["id"])
            body = {"server_group": {"name": flavor_name(reservation_id), "policy": policy}}
            try:
                return str(nova.post(_PATH, json=body).json()["server_group"]["id"])
            except Forbidden as error:
                raise Conflict(f"Nova refuses a server group: {error.message}") from None

    def _as_requester(self, token: str) -> Adapter:
        endpoint = str(self._own.get_endpoint())
        user = session.token_session(self._conf, token, endpoint)
        return Adapter(
            user,
            service_type=self._own.service_type,
            endpoint_override=endpoint,
            default_microversion=_MICROVERSION,
        )

    def delete(self, reservation_id: str) -> None:
        """Delete the groups of a reservation. Servers stay."""
        with answers():
            for group in list(_groups(self._own, all_projects="true")):
                if group["name"] == flavor_name(reservation_id):
                    session.send(
                        self._own, "Nova", "DELETE", f"{_PATH}/{group['id']}", allowed={404}
                    )


def _groups(nova: Adapter, **query: str) -> Iterator[Mapping[str, Any]]:
    """Yield the groups, page by page."""
    offset = 0
    while page := nova.get(_PATH, params={**query, "offset": offset}).json()["server_groups"]:
        yield from page
        offset += len(page)
