"""The Python client and the command sign in with Keystone, and find the service in the catalog."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from openstack.connection import Connection

from climate import client as climate
from climate.client.connection import OVERRIDE
from tests.openstack.accounts import Project
from tests.openstack.test_identity import checker, service  # noqa: F401 - fixtures
from tests.support.process import BIN, Service, environment


@pytest.fixture
def endpoint(cloud: Connection, service: Service) -> Iterator[str]:  # noqa: F811 - a fixture
    """Return the region in whose catalog the service is."""
    kind = cloud.identity.create_service(name="climate-client", type="reservation")
    region = cloud.identity.create_region(id="climate-client")
    made = cloud.identity.create_endpoint(
        service_id=kind.id, interface="public", url=f"{service.url}/v1", region_id=region.id
    )
    yield str(region.id)
    cloud.identity.delete_endpoint(made)
    cloud.identity.delete_region(region)
    cloud.identity.delete_service(kind)


def test_the_client_finds_the_service_in_the_catalog(lab: Project, endpoint: str) -> None:
    client = climate.connect(environ=lab.member.environment, region_name=endpoint)
    assert client.me().project.id == lab.id
    lease = client.leases.create("mine", duration=3600, reservations=[climate.hosts()])
    assert client.leases.wait_until_active(lease.id, timeout=60).project_id == lab.id
    client.leases.delete(lease.id)


def test_the_command_signs_in_and_says_why_it_cannot(
    lab: Project,
    service: Service,  # noqa: F811 - a fixture
    tmp_path: Path,
) -> None:
    variables = {
        **environment(tmp_path),
        **lab.member.environment,
        f"OS_{OVERRIDE.upper()}": service.url,
    }
    command: list[str | Path] = [BIN / "climate", "whoami", "-f", "json"]
    answer = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout)["project"]["id"] == lab.id
    wrong = {**variables, "OS_PASSWORD": "wrong"}
    answer = subprocess.run(command, env=wrong, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.startswith("Signing in failed: ")
