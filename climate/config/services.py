"""The options for connections to OpenStack services.

They are a subset of the options that keystoneauth defines for such connections.
"""

from oslo_config import cfg, types

# The section of each service, and its type in the catalog.
SERVICES = {
    "nova": "compute",
    "placement": "placement",
    "glance": "image",
    "neutron": "network",
    "heat": "orchestration",
    "cinder": "block-storage",
    "ironic": "baremetal",
}


def service_options() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options for the connection to each OpenStack service.

    The result is a list of pairs: section and options.
    """
    return [(group, _options(service_type)) for group, service_type in SERVICES.items()]


def _options(service_type: str) -> list[cfg.Opt]:
    return [
        cfg.StrOpt("service_type", default=service_type, help="Service type in the catalog."),
        cfg.StrOpt("service_name", help="Service name, if several services have that type."),
        cfg.ListOpt(
            "valid_interfaces",
            item_type=types.String(choices=["internal", "public", "admin"]),
            default=["internal", "public"],
            help="Interfaces of the catalog to use, in the order of preference.",
        ),
        cfg.StrOpt("region_name", help="Region of the service; default: that of [service_user]."),
        cfg.StrOpt(
            "endpoint_override",
            help="URL instead of the catalog's, with the same API version in it.",
        ),
    ]
