"""The version documents that keystoneauth reads to discover the API. They need no token."""

from typing import Any

from flask import request

from climate.api.call import Api


def _version(number: int, status: str) -> dict[str, Any]:
    href = f"{request.root_url}v{number}"
    return {
        "id": f"v{number}.0",
        "status": status,
        "links": [{"href": href, "rel": "self"}],
    }


def _v1() -> dict[str, Any]:
    return {**_version(1, "CURRENT"), "min_version": "1.0", "max_version": "1.0"}


def versions(_api: Api) -> tuple[Any, int]:
    """List the API versions.

    v2 has the status "experimental", so that clients do not select it automatically.
    """
    return {"versions": [_v1(), _version(2, "EXPERIMENTAL")]}, 300


def version_2(_api: Api) -> tuple[Any, int]:
    """Describe version 2 of the API, with a link to its OpenAPI document."""
    version = _version(2, "EXPERIMENTAL")
    described = {
        "href": f"{request.root_url}v2/openapi.json",
        "rel": "describedby",
        "type": "application/json",
    }
    return {"version": {**version, "links": [*version["links"], described]}}, 200


def version_1(_api: Api) -> tuple[Any, int]:
    """Describe version 1 of the API, which is compatible with Blazar."""
    return {"version": _v1()}, 200
