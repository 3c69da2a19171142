"""The driver for hosts on Nova: the complete HostCloud.

Its base classes are in ``nova_hosts``, which reads hosts and pools, and in ``nova_pools``, which
moves hosts between pools. This module adds the methods for services and servers. Nova does not
remove the servers from a host whose reservation ends, so climate deletes them.
"""

from climate.plugins.hosts.nova_pools import NovaPools
from climate.plugins.openstack import session
from climate.plugins.openstack.servers import keep_image


class NovaCloud(NovaPools):
    """The HostCloud for Nova, as the section ``[nova]`` configures it.

    A host has the name of its compute service. A single node of a service is a host with the name
    ``service/node``.
    """

    def disable_service(self, host: str) -> None:
        holders = self._holders(self._aggregates(), host)
        self._services.disable(host, is_free=holders == [self._free])

    def enable_service(self, host: str) -> None:
        self._services.enable(host)

    def delete_servers(self, pool: str, host: str) -> None:
        """Delete the servers on a host of a pool.

        Raises NotYet if servers remain after ``[nova] server_delete_wait`` seconds. Before each
        deletion, the method checks that the host is still in the pool: a manager that was paused
        must not delete the servers of the next reservation.
        """

        def find() -> list[str]:
            return self._host_servers.on(host) if host in self.pool_hosts(pool) else []

        self._host_servers.evict(find, self._patience, f" on {host}")

    def snapshot_servers(self, host: str, occasion: str) -> None:
        """Create an image ``reserved_<name>`` of each server on a host, for the server's project.

        ``occasion`` is a text that identifies the reason for the images, such as the end of a
        lease. If the call is repeated with the same text, it creates only the images that are
        missing.
        """
        with session.answers():
            for server in self._host_servers.servers(host):
                keep_image(self._images, server, occasion)
