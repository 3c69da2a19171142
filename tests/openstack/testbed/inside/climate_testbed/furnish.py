"""Resources of a new cloud: ``python -m climate_testbed.furnish catalog | resources``."""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import openstack
from openstack.connection import Connection

# Lines of "user type address": which user a service has, and where the service is.
_CATALOG = [line.split() for line in os.environ["CATALOG"].splitlines()]
_FLAVORS = {"m1.tiny": (1, 512), "m1.small": (1, 2048), "m1.large": (4, 8192)}
_INTERFACES = ("public", "internal", "admin")
_PATIENCE = 120.0


def furnish_catalog(cloud: Connection) -> None:
    """Create the service users and the catalog."""
    identity = cloud.identity
    project = identity.find_project("service") or identity.create_project(
        name="service", domain_id="default"
    )
    roles = [_role(cloud, name) for name in ("admin", "service")]
    for name, kind, url in _CATALOG:
        user = _user(cloud, name, "default")
        for role in roles:
            identity.assign_project_role_to_user(project, user, role)
        _publish(cloud, name, kind, url)
    _role(cloud, "heat_stack_user")  # of what signals scaling policies
    domain = identity.find_domain("heat") or identity.create_domain(name="heat")
    admin = _user(cloud, "heat_domain_admin", domain.id)
    identity.assign_domain_role_to_user(domain, admin, roles[0])


def _role(cloud: Connection, name: str) -> Any:
    return cloud.identity.find_role(name) or cloud.identity.create_role(name=name)


def _user(cloud: Connection, name: str, domain: str) -> Any:
    return cloud.identity.find_user(name, domain_id=domain) or cloud.identity.create_user(
        name=name, password="secret", domain_id=domain
    )


def _publish(cloud: Connection, name: str, kind: str, url: str) -> None:
    """Write a service's address to the catalog."""
    identity = cloud.identity
    service = identity.find_service(name) or identity.create_service(name=name, type=kind)
    known = {found.interface: found for found in identity.endpoints(service_id=service.id)}
    for interface in _INTERFACES:
        if interface not in known:
            identity.create_endpoint(
                service_id=service.id, interface=interface, url=url, region_id="RegionOne"
            )
        elif known[interface].url != url:
            identity.update_endpoint(known[interface], url=url)


def furnish_resources(cloud: Connection) -> None:
    """Create flavors, an image, networks and the pool; wait until all workers run."""
    compute, image = cloud.compute, cloud.image
    # In the mode "blazar", hosts in the aggregate of this name are closed.
    if not compute.find_aggregate("freepool"):
        compute.create_aggregate(name="freepool")
    for name, (vcpus, ram) in _FLAVORS.items():
        if not compute.find_flavor(name):
            compute.create_flavor(name=name, vcpus=vcpus, ram=ram, disk=1)
    if not image.find_image("cirros"):
        image.create_image(
            name="cirros",
            data=b"0" * 1024,
            disk_format="raw",
            container_format="bare",
            visibility="public",
        )
    _furnish_network(cloud)
    _wait(cloud)


def _furnish_network(cloud: Connection) -> None:
    """Create a public network for floating IPs, and a private one for all projects."""
    network = cloud.network
    public = network.find_network("public") or network.create_network(
        name="public",
        is_router_external=True,
        provider_network_type="flat",
        provider_physical_network="public",
    )
    pool = [{"start": "172.24.4.100", "end": "172.24.4.200"}]
    _subnet(cloud, public, "172.24.4.0/24", is_dhcp_enabled=False, allocation_pools=pool)
    private = network.find_network("private") or network.create_network(
        name="private", is_shared=True
    )
    inside = _subnet(cloud, private, "10.0.0.0/16")
    if not network.find_router("router"):
        router = network.create_router(
            name="router", external_gateway_info={"network_id": public.id}
        )
        network.add_interface_to_router(router, subnet_id=inside.id)


def _subnet(cloud: Connection, network: Any, cidr: str, **options: Any) -> Any:
    return cloud.network.find_subnet(network.name) or cloud.network.create_subnet(
        name=network.name, network_id=network.id, cidr=cidr, ip_version=4, **options
    )


def _wait(cloud: Connection) -> None:
    """Wait for the workers behind the APIs, which have no port."""
    deadline = time.monotonic() + _PATIENCE
    while missing := _missing(cloud):
        if time.monotonic() > deadline:
            sys.exit(f"not ready: {missing}")
        time.sleep(0.5)


def _missing(cloud: Connection) -> str | None:
    """Return a worker that does not run yet; None if all run."""
    hosts = {given.partition("=")[0]: given for given in os.environ["FAKE_HOSTS"].split()}
    nodes = sum(given.count(",") + 1 for given in hosts.values())
    up = {item.host for item in cloud.compute.services(binary="nova-compute") if item.state == "up"}
    if down := set(hosts) - up:
        return f"hosts {', '.join(sorted(down))} are down"
    if (known := len(list(cloud.compute.hypervisors()))) < nodes:
        return f"of {nodes} nodes Nova knows {known}"
    volumes = cloud.block_storage.get("/os-services").json().get("services", [])
    if sum(volume["state"] == "up" for volume in volumes) < 2:
        return "Cinder's scheduler and volume service are not both up"
    engines = cloud.orchestration.get("/services").json().get("services", [])
    return None if any(engine["status"] == "up" for engine in engines) else "heat-engine is not up"


def main() -> None:
    stages: dict[str, Callable[[Connection], None]] = {
        "catalog": furnish_catalog,
        "resources": furnish_resources,
    }
    stages[sys.argv[1]](openstack.connect())


if __name__ == "__main__":
    main()
