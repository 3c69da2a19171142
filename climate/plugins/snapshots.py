"""Images of servers that are about to be deleted, for the projects that they belong to."""

from typing import Any

from keystoneauth1.adapter import Adapter

_KEPT = {"active", "importing", "queued", "saving", "uploading"}
# The states of servers, as Nova calls them, in which it makes images of them.
_IMAGED = {"active", "paused", "stopped", "suspended"}
_PATCH = {"Content-Type": "application/openstack-images-v2.1-json-patch"}


def can_be_kept(server: Any) -> bool:  # noqa: ANN401 - novaclient's
    """Tell whether Nova makes images of a server in such a state, or is at it or at its end."""
    return is_busy(server) or getattr(server, "OS-EXT-STS:vm_state") in _IMAGED


def is_busy(server: Any) -> bool:  # noqa: ANN401 - novaclient's
    """Tell whether Nova is at a server, to make an image of it, for instance."""
    return getattr(server, "OS-EXT-STS:task_state", None) is not None


def keep_image(
    images: Adapter,
    server: Any,  # noqa: ANN401 - novaclient's
    occasion: str,
) -> bool:
    """Make an image ``reserved_<name>`` of a server, once for an occasion, and its project's.

    Nova makes it for whoever asks, and that is us; an interrupted call is completed by the next.
    Return whether it is saved, or Nova, at it no more, left it unsaved.
    """
    mark = {"climate_server": server.id, "climate_occasion": occasion}
    # Anyone can put our marks on an own image; what Nova makes of a server it marks itself.
    query = {**mark, "instance_uuid": server.id}
    found = [
        image
        for image in images.get("/v2/images", params=query).json()["images"]
        if image["status"] in _KEPT
    ]
    is_new = not found
    if is_new:
        found = [{"id": server.create_image(f"reserved_{server.name}", mark)}]
    for image in found:
        if image.get("owner") != server.tenant_id:
            change = [{"op": "replace", "path": "/owner", "value": server.tenant_id}]
            images.patch(f"/v2/images/{image['id']}", json=change, headers=_PATCH)
    saved = any(image.get("status") == "active" for image in found)
    return saved or not (is_new or is_busy(server))
