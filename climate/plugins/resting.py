"""Compute services that are out of service as their hosts are to be without power.

Nova's scheduler leaves alone what is disabled. The reason says that it was us: what an operator
disabled stays disabled, and what we did is no failure of the host.
"""

from typing import Any

from keystoneauth1.exceptions import ConnectTimeout

from climate.core.errors import Conflict
from climate.plugins.compute_host import REST
from climate.plugins.occupants import Occupants
from climate.plugins.openstack import answers

_COMPUTE = "nova-compute"
# Nova stores it at once, and answers when it has told the host: if that is off, and Nova has not
# noticed, after a minute (rpc_response_timeout). The host will know when it starts.
_PATIENCE = 5.0


class Resting:
    """Takes services out of service and back. Raises BackendUnavailable."""

    def __init__(self, nova: Any, occupants: Occupants) -> None:  # noqa: ANN401 - novaclient's
        """Work with these ways into the cloud."""
        self._nova = nova
        self._occupants = occupants

    def services(self, **where: str) -> list[Any]:
        """Return all compute services, or that of one ``host``. Raises what the client raises."""
        return list(self._nova.services.list(binary=_COMPUTE, **where))

    @answers()
    def rest(self, host: str, *, is_free: bool) -> None:
        """Disable the service of a free host, and then look who is there; raises Conflict.

        One that rests already may be a lease's by now; it is to go off all the same.
        """
        service = self._service(host)
        if service is None:
            raise Conflict(f"Nova has no compute service {host}")
        if service.status == "enabled":
            if not is_free:
                raise Conflict(f"{host} is not in the free pool")
            self._store(service, status="disabled", disabled_reason=REST)
        elif service.disabled_reason != REST:
            raise Conflict(f"{host} is disabled in Nova: {service.disabled_reason or 'no reason'}")
        if others := self._occupants.on(host):
            raise Conflict(f"servers {', '.join(others)} are on {host}")

    @answers()
    def rouse(self, host: str) -> None:
        """Enable a service that we disabled; fine if it is not there or was not."""
        service = self._service(host)
        if service and service.status == "disabled" and service.disabled_reason == REST:
            self._store(service, status="enabled")

    def _store(self, service: Any, **wanted: str) -> None:  # noqa: ANN401 - novaclient's
        """Have Nova store what a service is to be, whether or not its host can be told."""
        try:
            self._nova.client.put(f"/os-services/{service.id}", body=wanted, timeout=_PATIENCE)
        except ConnectTimeout:
            found = self._service(service.host)
            if found is not None and found.status != wanted["status"]:
                raise

    def _service(self, host: str) -> Any | None:  # noqa: ANN401 - novaclient's
        return next(iter(self.services(host=host)), None)
