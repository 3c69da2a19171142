"""What climate creates is ready when its lease starts, on a real cloud with slow images."""

import socket
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from openstack.compute.v2.server import Server

from tests.openstack import guests, settings
from tests.openstack.accounts import Account, Project
from tests.openstack.conftest import Deploy
from tests.openstack.deployment import Deployment
from tests.openstack.storage import Base
from tests.support.process import eventually

pytestmark = pytest.mark.timeout(400)

HOSTS = settings.HOSTS[:3]
PLUGINS = (
    "physical.host.plugin",
    "virtual.instance.plugin",
    "flavor.instance.plugin",
    "virtual.volume.plugin",
    "virtual.stack.plugin",
)
# Seconds that a manager may take for what is left to do at the start.
SOON = timedelta(seconds=6)

MakeImage = Callable[[int, int], str]


@pytest.fixture
def make_image(administrator: Account) -> Iterator[MakeImage]:
    """Return a maker of images whose servers take some seconds to build, and then to boot."""
    images, made = administrator.cloud.image, []
    raw = {"disk_format": "raw", "container_format": "bare", "visibility": "public"}

    def make(build: int, boot: int) -> str:
        made.append(images.create_image(f"build-{build}-boot-{boot}", data=b"-", wait=True, **raw))
        return str(made[-1].id)

    yield make
    for image in made:
        images.delete_image(image.id)


@pytest.fixture
def climate(deploy: Deploy, base: Base) -> Deployment:
    made = deploy(
        "blazar",
        manager__plugins=",".join(PLUGINS),
        manager__sync_interval=5,
        manager__minutes_before_end_lease=0,
        creation__enabled=True,
        creation__prior=12,
        creation__check_networks="127.77.0.0/16",
        **{"virtual:volume__cloud": "cinder", "virtual:stack__cloud": "heat"},
    )
    base.register(made.http(made.administrator))
    made.start_manager()
    made.register(*HOSTS)
    return made


def servers(image: str, amount: int = 1) -> dict[str, Any]:
    """Return a request for servers that have booted when their console shows a login prompt."""
    size = {"vcpus": 1, "memory_mb": 64, "disk_gb": 1, "affinity": None}
    server = {"imageRef": image, "networks": "none", "name": "web"}
    more = {"on_start": "create", "server": server, "ready_text": "login:"}
    return {"resource_type": "virtual:instance", "params": {"amount": amount, **size, **more}}


@pytest.fixture
def network(lab: Project) -> Iterator[str]:
    """Return a network of the project whose addresses are those of this machine.

    The servers of the testbed are fake, so the test accepts connections at their addresses.
    """
    networks = lab.member.cloud.network
    made = networks.create_network(name="loopback")
    networks.create_subnet(
        network_id=made.id, ip_version=4, cidr="127.77.9.0/24", is_dhcp_enabled=False
    )
    yield str(made.id)
    networks.delete_network(made)


def stack(image: str, flavor: str) -> dict[str, Any]:
    networks = [{"allocate_network": "none"}]
    web = {"image": image, "flavor": flavor, "networks": networks}
    template = {
        "heat_template_version": "2016-10-14",
        "resources": {"web": {"type": "OS::Nova::Server", "properties": web}},
    }
    return {"resource_type": "virtual:stack", "params": {"template": template}}


def reserve(
    climate: Deployment, account: Account, seconds: float, reservations: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Create a lease that starts in some seconds, for ten minutes."""
    start = datetime.now().astimezone().replace(microsecond=0) + timedelta(seconds=seconds)
    body = {"name": "ready", "start": start.isoformat(), "duration": 600}
    body["reservations"] = list(reservations)
    return dict(climate.http(account).ok("POST", "/v2/leases", body))


def booted(account: Account) -> list[Server]:
    """Return the servers of the project whose consoles show a login prompt."""
    nova = account.cloud.compute
    active = [each for each in nova.servers() if each.status == "ACTIVE"]
    return [each for each in active if "login:" in str(nova.get_server_console_output(each))]


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def until_active(climate: Deployment, account: Account, lease: dict[str, Any]) -> dict[str, Any]:
    """Wait until a lease is ACTIVE, and return it."""
    http, path = climate.http(account), f"/v2/leases/{lease['id']}"

    def found() -> dict[str, Any] | None:
        shown = http.ok("GET", path)
        return dict(shown) if shown["status"] == "ACTIVE" else None

    return eventually(found, f"{path} is ACTIVE", 300)


def statuses(account: Account) -> dict[str, list[str]]:
    """Return the statuses of the project's servers, volumes and stacks."""
    cloud = account.cloud
    return {
        "servers": [server.status for server in cloud.compute.servers()],
        "volumes": [volume.status for volume in cloud.block_storage.volumes()],
        "stacks": [stack.status for stack in cloud.orchestration.stacks()],
    }


def test_servers_volumes_and_stacks_are_ready_when_their_lease_starts(
    climate: Deployment, lab: Project, base: Base, make_image: MakeImage
) -> None:
    flavor, _ = guests.smallest(lab.member.cloud)
    volume = {"volume_type": base.name, "amount": 1, "size": 1}
    wanted = [
        servers(make_image(6, 8)),
        stack(make_image(12, 0), flavor),
        {"resource_type": "virtual:volume", "params": volume},
    ]
    lease = reserve(climate, lab.member, 60, wanted)
    assert moment(lease["booked_from"]) < moment(lease["start"]) - timedelta(seconds=12)

    http = climate.http(lab.member)
    path = f"/v2/leases/{lease['id']}"
    ready = eventually(
        lambda: found if (found := http.ok("GET", path))["ready_at"] else None, "ready", 90
    )
    assert ready["status"] == "PENDING"
    assert moment(lease["booked_from"]) < moment(ready["ready_at"]) < moment(lease["start"])
    found = statuses(lab.member)
    assert set(found["servers"]) == {"ACTIVE"}
    assert len(found["servers"]) == 2
    assert found["volumes"] == ["available"]
    assert found["stacks"] == ["UPDATE_COMPLETE"]

    active = until_active(climate, lab.member, lease)
    assert moment(lease["start"]) <= moment(active["started_at"]) < moment(lease["start"]) + SOON
    assert climate.audit() == []
    climate.end(lab.member, lease["id"])
    assert statuses(lab.member) == {"servers": [], "volumes": [], "stacks": []}


def test_a_server_is_ready_when_it_accepts_connections_on_its_port(
    network: str, climate: Deployment, lab: Project, make_image: MakeImage
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    web = servers(make_image(1, 2))
    web["params"] |= {"ready_port": port}
    web["params"]["server"] |= {"networks": [{"uuid": network}]}
    lease = reserve(climate, lab.member, 3, [web])
    [server] = eventually(lambda: booted(lab.member), "the server has booted", 60)
    climate.check_status_stays(lab.member, lease["id"], "STARTING")
    [[address]] = server.addresses.values()
    with socket.create_server((address["addr"], port)):
        until_active(climate, lab.member, lease)
    climate.end(lab.member, lease["id"])


@pytest.mark.nightly
@pytest.mark.timeout(1500)
def test_leases_of_quick_and_slow_images_are_ready_when_they_start(
    climate: Deployment, lab: Project, make_image: MakeImage
) -> None:
    images = [make_image(build, boot) for build, boot in ((3, 2), (10, 10), (20, 30), (50, 40))]
    for image in images:  # climate learns how long each image takes
        climate.end(lab.member, until_active(climate, lab.member, learn(climate, lab, image))["id"])
    leases = [
        reserve(climate, lab.member, 180 + 4 * number, [servers(image)])
        for number, image in enumerate(images * 2)
    ]
    leads = [moment(each["start"]) - moment(each["booked_from"]) for each in leases[:4]]
    assert leads == sorted(leads)
    active = [until_active(climate, lab.member, lease) for lease in leases]
    assert [each["name"] for each in active if each["ready_at"] > each["start"]] == []
    idle = sum((moment(each["start"]) - moment(each["ready_at"]) for each in active), timedelta())
    assert idle < sum(leads[3:] * len(active), timedelta()) / 2


def learn(climate: Deployment, lab: Project, image: str) -> dict[str, Any]:
    return reserve(climate, lab.member, 1, [servers(image)])
