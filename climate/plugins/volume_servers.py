"""Servers that have volumes attached: Nova's part of taking these back."""

from typing import Any

from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from oslo_config.cfg import ConfigOpts
from requests import Response

from climate.core.errors import BackendUnavailable
from climate.plugins import openstack

# The oldest that tells an administrator which device a server starts from.
_VERSION = "2.3"
_REFUSED, _GONE, _CONFLICT = 400, 404, 409


class VolumeServers:
    """The servers of ``[nova]``, as far as they have volumes."""

    def __init__(self, conf: ConfigOpts, session: Session) -> None:
        """Prepare the client; nothing is sent yet."""
        self._nova: Adapter = openstack.adapter(conf, session, "nova", _VERSION)

    def detach(self, server_id: str, volume_id: str) -> bool:
        """Begin to take a volume from a server; tell whether there is such a server.

        One that starts from it cannot be without: it is deleted.
        """
        server = self._send("GET", f"/servers/{server_id}")
        if server.status_code == _GONE:
            return False
        path = f"/servers/{server_id}/os-volume_attachments/{volume_id}"
        found = self._send("GET", path)
        if found.status_code == _GONE:
            return False
        is_root = _device(found.json()["volumeAttachment"]) == server.json()["server"].get(
            "OS-EXT-SRV-ATTR:root_device_name"
        )
        self._send("DELETE", f"/servers/{server_id}" if is_root else path, _CONFLICT)
        return True

    def _send(self, method: str, path: str, *fine: int) -> Response:
        with openstack.answers():
            answer = self._nova.request(path, method, raise_exc=False)
        if answer.status_code < _REFUSED or answer.status_code in {_GONE, *fine}:
            return answer
        raise BackendUnavailable(f"Nova does not do it: {answer.status_code} {answer.text[:200]}")


def _device(attachment: dict[str, Any]) -> str:
    return str(attachment.get("device"))
