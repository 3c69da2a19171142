"""The microversion header of v1, ``OpenStack-API-Version``. The only microversion is 1.0."""

import re

from flask import Response

from climate.core.errors import UnsupportedVersion

HEADER = "OpenStack-API-Version"
_SERVICE = "reservation"
_VERSION = "1.0"


def check(header: str | None) -> None:
    """Check ``header``, the microversion that a client requests, such as ``"reservation 1.0"``.

    Accepts 1.0, ``latest`` and an absent header (None). Raises UnsupportedVersion (status 406) for
    any other microversion, and InvalidVersion (400) for a malformed microversion. Ignores the parts
    of the header that are for other services.
    """
    for part in (header or "").split(","):
        service, _, version = part.strip().partition(" ")
        if service.lower() == _SERVICE:
            _check_version(version.strip())


def _check_version(version: str) -> None:
    if version in {"latest", _VERSION}:
        return
    if re.fullmatch(r"\d+\.\d+", version, re.ASCII):
        raise UnsupportedVersion(
            f"Version {version} is not supported by the API. Minimum is {_VERSION} and maximum is"
            f" {_VERSION}."
        )
    raise InvalidVersion(f"API version string {version!r} is of invalid format. Must be X.Y.")


class InvalidVersion(UnsupportedVersion):
    """Raised if the header names the service ``reservation`` with a malformed version."""

    code = "invalid_version"
    status = 400


def add_headers(response: Response) -> None:
    """Add the response headers that tell the client which microversion answered."""
    response.headers[HEADER] = f"{_SERVICE} {_VERSION}"
    response.headers["Vary"] = HEADER
