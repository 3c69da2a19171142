"""Images of servers that are about to be deleted, for the projects that they belong to."""

from typing import Any

from keystoneauth1.adapter import Adapter

_KEPT = {"active", "importing", "queued", "saving", "uploading"}
_PATCH = {"Content-Type": "application/openstack-images-v2.1-json-patch"}


def keep_image(
    images: Adapter,
    server: Any,  # noqa: ANN401 - novaclient's
    occasion: str,
) -> None:
    """Make an image ``reserved_<name>`` of a server, once for an occasion, and its project's.

    Nova makes it for whoever asks, and that is us; an interrupted call is completed by the next.
    """
    mark = {"climate_server": server.id, "climate_occasion": occasion}
    # Anyone can put our marks on an own image; what Nova makes of a server it marks itself.
    query = {**mark, "instance_uuid": server.id}
    found = [
        image
        for image in images.get("/v2/images", params=query).json()["images"]
        if image["status"] in _KEPT
    ]
    if not found:
        found = [{"id": server.create_image(f"reserved_{server.name}", mark)}]
    for image in found:
        if image.get("owner") != server.tenant_id:
            change = [{"op": "replace", "path": "/owner", "value": server.tenant_id}]
            images.patch(f"/v2/images/{image['id']}", json=change, headers=_PATCH)
