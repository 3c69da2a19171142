"""The HostCloud for Nova.

``nova_hosts`` reads hosts and pools, ``nova_pools`` moves hosts between pools. This module adds the
methods for services and servers. Nova does not remove the servers from a host whose reservation
ends, so climate deletes them.
"""

import time

from climate.plugins.base import NotYet
from climate.plugins.hosts.nova_pools import NovaPools
from climate.plugins.openstack import session
from climate.plugins.openstack.servers import keep_image

# Seconds between two requests for the servers that Nova is deleting.
_PAUSE = 0.2


class NovaCloud(NovaPools):
    """The HostCloud for the Nova of ``[nova]``.

    A host has the name of its compute service, a single node the name ``service/node``.
    """

    def disable_service(self, host: str) -> None:
        """Disable the compute service of a host in the free pool.

        Raises Conflict if the host is not free, if an operator disabled the service, or if servers
        are on the host after its service is disabled.
        """
        holders = self._holders(self._aggregates(), host)
        self._services.disable(host, is_free=holders == [self._free])

    def enable_service(self, host: str) -> None:
        """Enable the service of a host, if climate disabled it."""
        self._services.enable(host)

    def delete_servers(self, pool: str, host: str) -> None:
        """Delete every server on a host of the pool, and wait until Nova has deleted them.

        Raises NotYet if servers remain after ``[nova] server_delete_wait`` seconds. Before each
        deletion, checks that the host is still in the pool: a manager that was paused must not
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
        """Create an image ``reserved_<name>`` of every server on the host, once per ``occasion``.

        The project of the server becomes the owner of the image.
        """
        with session.answers():
            for server in self._host_servers.servers(host):
                keep_image(self._images, server, occasion)
