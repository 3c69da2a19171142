"""Parts of Heat templates."""

from typing import Any

from tests.support.process import date

Template = dict[str, Any]

# What Heat says that they have, but for a host's ``extra_capability``, which has never worked: in
# the API capabilities stand beside the other keys, and so they do in ``show``.
LEASE_ATTRIBUTES = {
    *("name", "start_date", "end_date", "created_at", "updated_at", "status", "degraded"),
    *("user_id", "project_id", "trust_id", "reservations", "events"),
}
HOST_ATTRIBUTES = {
    *("hypervisor_hostname", "hypervisor_type", "hypervisor_version", "vcpus", "cpu_info"),
    *("memory_mb", "local_gb", "service_name", "reservable", "status", "trust_id"),
    *("created_at", "updated_at"),
}


def template(outputs: Template | None = None, **resources: Template) -> Template:
    return {
        "heat_template_version": "2021-04-16",
        "resources": resources,
        "outputs": outputs or {},
    }


def attributes(resource: str, names: set[str]) -> Template:
    return {f"{resource}.{name}": {"value": {"get_attr": [resource, name]}} for name in names}


def host(name: str, **capabilities: str) -> Template:
    properties = {"name": name, "extra_capability": capabilities}
    return {"type": "OS::Blazar::Host", "properties": properties}


def lease(start: str, count: int = 1, expression: str = "", **more: Any) -> Template:
    """Return a resource that leases hosts for three hours from now at most."""
    asked = {"resource_type": "physical:host", "min": count, "max": count}
    # What is left out arrives as null.
    asked |= {"resource_properties": expression} if expression else {"hypervisor_properties": ""}
    return {
        "type": "OS::Blazar::Lease",
        "properties": {
            "name": "from-heat",
            "start_date": start,
            "end_date": date(180),
            "events": [{"event_type": "check.disks", "time": date(170)}],
            "reservations": [asked],
        },
        **more,
    }


def server(image: str, flavor: str, reservation: Any) -> Template:
    return {
        "type": "OS::Nova::Server",
        "properties": {
            "image": image,
            "flavor": flavor,
            "networks": [{"allocate_network": "none"}],
            "scheduler_hints": {"reservation": reservation},
        },
    }
