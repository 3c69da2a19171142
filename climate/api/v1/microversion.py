"""The microversion header of v1; only 1.0 exists."""

import re

from flask import Response

from climate.core.errors import UnsupportedVersion

HEADER = "OpenStack-API-Version"
_SERVICE = "reservation"
_ONLY = "1.0"


def check(header: str | None) -> None:
    """Raise UnsupportedVersion (406) for another version, InvalidInput (400) for none.

    A header for another service, or without one, is as good as none.
    """
    for part in (header or "").split(","):
        service, _, version = part.strip().partition(" ")
        if service.lower() == _SERVICE:
            _check_version(version.strip())


def _check_version(version: str) -> None:
    if version in {"latest", _ONLY}:
        return
    if re.fullmatch(r"\d+\.\d+", version, re.ASCII):
        raise UnsupportedVersion(
            f"Version {version} is not supported by the API. Minimum is {_ONLY} and maximum is"
            f" {_ONLY}."
        )
    raise InvalidVersion(f"API version string {version!r} is of invalid format. Must be X.Y.")


class InvalidVersion(UnsupportedVersion):
    """The header names our service and no version."""

    code = "invalid_version"
    status = 400


def add_headers(response: Response) -> None:
    """Say which version answered."""
    response.headers[HEADER] = f"{_SERVICE} {_ONLY}"
    response.headers["Vary"] = HEADER
