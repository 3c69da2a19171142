"""Server groups in Nova, for clients of Blazar that boot with the hint ``group``.

climate enforces the affinity of a reservation without a group. A group must belong to the project
of the lease, as Nova refuses the hint to the members of other projects. So climate creates it as
the lease's user, and deletes it with its own rights, which do not depend on the user's roles.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from oslo_config.cfg import ConfigOpts

from climate.plugins.instances.nova_flavors import flavor_name
from climate.plugins.openstack import session
from climate.plugins.openstack.session import answers
from climate.plugins.openstack.trusts import Trusts

# From this microversion on, a group has one policy instead of a list.
_MICROVERSION = "2.64"
_PATH = "/os-server-groups"


class ServerGroups:
    """Creates and deletes the server groups of reservations, which have the names of flavors."""

    def __init__(self, conf: ConfigOpts, own: Session) -> None:
        """Use the session ``own`` of climate's user, and trusts."""
        self._conf = conf
        self._trusts = Trusts(conf)
        self._own = session.adapter(conf, own, "nova", _MICROVERSION)

    def ensure(self, trust_id: str, reservation_id: str, policy: str) -> str:
        """Return the id of the reservation's group; create the group if it does not exist.

        ``policy`` is ``affinity`` or ``anti-affinity``. Raises DeadTrust, and BackendUnavailable if
        Nova refuses, for example because the project's quota of groups is used up.
        """
        nova = session.adapter(self._conf, self._trusts.session(trust_id), "nova", _MICROVERSION)
        with answers():
            for group in _groups(nova):
                if group["name"] == flavor_name(reservation_id):
                    return str(group["id"])
            body = {"server_group": {"name": flavor_name(reservation_id), "policy": policy}}
            return str(nova.post(_PATH, json=body).json()["server_group"]["id"])

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
