"""The options that say where the service is and how to sign in."""

import argparse
import getpass
import os
import sys
from collections.abc import Mapping
from typing import Any

from climate.client import Client, connect
from climate.client.connection import OVERRIDE, options_of

_OPTIONS: Mapping[str, str] = {
    "cloud": "a cloud of clouds.yaml",
    "auth_type": "how to sign in: password, v3applicationcredential, none, ...",
    "auth_url": "the URL of Keystone",
    "endpoint": "the URL of climate, with the auth types none and admin_token",
    "token": "a token, with the auth types token and admin_token",
    "username": "the user",
    "password": "the password (better in the variable: others see arguments)",
    "project_name": "the project",
    "project_id": "the id of the project",
    "user_domain_name": "the domain of the user",
    "project_domain_name": "the domain of the project",
    "application_credential_id": "the id of an application credential",
    "application_credential_secret": "its secret (better in the variable)",
    "region_name": "the region",
    "interface": "the interface of the endpoint: public, internal or admin",
    OVERRIDE: "the URL of climate, instead of that in the catalog",
    "cacert": "file with the certificate authorities to trust",
}


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    """Add the options; each takes precedence over its variable."""
    group = parser.add_argument_group(
        "where the service is", "Each option can also be a variable: --os-cloud is OS_CLOUD."
    )
    for name, text in _OPTIONS.items():
        option = f"--os-{name.replace('_', '-')}"
        group.add_argument(option, dest=f"os_{name}", metavar="VALUE", help=text)
    group.add_argument(
        "--insecure",
        dest="os_insecure",
        action="store_const",
        const="true",
        help="do not check certificates",
    )


class ClientManager:
    """Makes the client when a command needs it; the ``openstack`` command has one of this form."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        given = vars(arguments)
        self._given: dict[str, Any] = {
            name: given.get(f"os_{name}") for name in (*_OPTIONS, "insecure")
        }
        self._client: Client | None = None

    @property
    def climate(self) -> Client:
        """The client. Raises NotConfigured."""
        if self._client is None:
            self._client = connect(**{**self._given, **self._prompted()})
        return self._client

    def _prompted(self) -> dict[str, str]:
        """Ask for the password if it is missing and a person can answer."""
        given = {name: value for name, value in self._given.items() if value}
        options = {**options_of(os.environ), **given}
        is_password = options.get("auth_type", "password").endswith("password")
        is_missing = "auth_url" in options and not options.keys() & {"password", "cloud", "token"}
        if not (is_password and is_missing and sys.stdin is not None and sys.stdin.isatty()):
            return {}
        return {"password": getpass.getpass("Password: ")}
