"""The HostCloud of Nova: hosts (``nova_hosts``), pools (``nova_pools``), services and servers.

Nova does not evict servers from a host whose reservation ends, so climate deletes them.
"""

import time

from climate.plugins.base import NotYet
from climate.plugins.hosts.nova_pools import NovaPools
from climate.plugins.openstack import session
from climate.plugins.openstack.servers import keep_image

# Seconds between two looks at servers that Nova is deleting.
_PAUSE = 0.2


class NovaCloud(NovaPools):
    """The HostCloud of ``[nova]``; hosts are named by their compute service."""

    def disable_service(self, host: str) -> None:
        """Disable a free host's service. Raises Conflict, also if servers are then on the host."""
        holders = self._holders(self._aggregates(), host)
        self._services.disable(host, is_free=holders == [self._free])

    def enable_service(self, host: str) -> None:
        """Enable the service of a host, if climate disabled it."""
        self._services.enable(host)

    def delete_servers(self, pool: str, host: str) -> None:
        """Delete every server on a host of the pool; raises NotYet while some remain.

        It checks each time that the pool still has the host: a manager that was paused must not
        delete the servers of the next reservation.
        """
        until = time.monotonic() + self._patience
        while host in self.pool_hosts(pool):
            with session.answers():
                remaining = self._host_servers.on(host)
                self._host_servers.delete(remaining)
            if not remaining:
                return
            if time.monotonic() > until:
                raise NotYet(f"servers {', '.join(remaining)} on {host} are still being deleted")
            time.sleep(_PAUSE)

    def snapshot_servers(self, host: str, occasion: str) -> None:
        """Save an image ``reserved_<name>`` of every server on the host, for its project."""
        with session.answers():
            for server in self._host_servers.servers(host):
                keep_image(self._images, server, occasion)
