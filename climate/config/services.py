"""How the services of the cloud are reached, by those of keystoneauth's names that we go by."""

from oslo_config import cfg, types

# Services of the cloud, by the section that says how to reach each, with their catalog types.
SERVICES = {
    "nova": "compute",
    "placement": "placement",
    "glance": "image",
    "neutron": "network",
    "heat": "orchestration",
    "cinder": "block-storage",
}


def ways() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options of each service by group."""
    return [(group, _way(service_type)) for group, service_type in SERVICES.items()]


def _way(service_type: str) -> list[cfg.Opt]:
    return [
        cfg.StrOpt(
            "service_type", default=service_type, help="Type of the service in the catalog."
        ),
        cfg.StrOpt("service_name", help="Name of the service, if several have that type."),
        cfg.ListOpt(
            "valid_interfaces",
            item_type=types.String(choices=["internal", "public", "admin"]),
            default=["internal", "public"],
            help="Which addresses in the catalog to use, the best first.",
        ),
        cfg.StrOpt("region_name", help="Region of the service, if not that of [service_user]."),
        cfg.StrOpt(
            "endpoint_override",
            help="Address instead of that in the catalog, with the version as there.",
        ),
    ]
