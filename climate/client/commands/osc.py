"""The plug-in of the ``openstack`` command: ``openstack climate lease create`` and so on.

The names in this module are those that openstackclient reads.
"""

import argparse
from typing import TYPE_CHECKING, Any

from climate.client.connection import OVERRIDE, SERVICE_TYPE

if TYPE_CHECKING:
    from climate.client import Client

API_NAME = "climate"
API_VERSION_OPTION = "os_climate_api_version"
API_VERSIONS = {"2": "climate.client.Client"}
DEFAULT_API_VERSION = "2"


def make_client(instance: Any) -> "Client":  # noqa: ANN401 - osc_lib's ClientManager
    """Return the client for the cloud and the user of the ``openstack`` command."""
    from climate.client import connect  # noqa: PLC0415 - each openstack command loads this module

    endpoint = instance.get_endpoint_for_service_type(
        SERVICE_TYPE, region_name=instance.region_name, interface=instance.interface
    )
    return connect(session=instance.session, **{OVERRIDE: endpoint})


def build_option_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the option for the version of the API to the ``openstack`` command."""
    parser.add_argument(
        "--os-climate-api-version",
        metavar="VERSION",
        default=DEFAULT_API_VERSION,
        help=f"version of climate's API, {DEFAULT_API_VERSION} by default",
    )
    return parser
