"""The tests of blazar-tempest-plugin, unmodified, run against climate in the catalog."""

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from openstack.connection import Connection
from werkzeug.exceptions import NotFound
from werkzeug.middleware.http_proxy import ProxyMiddleware

from tests.openstack import guests, settings
from tests.openstack.accounts import Account
from tests.openstack.conftest import Deploy
from tests.openstack.deployment import Deployment
from tests.openstack.testbed import layout, packages
from tests.openstack.testbed.layout import Unreachable
from tests.support import servers
from tests.support.wsgi import listening

# Its scenarios wait for leases that last one or two minutes.
pytestmark = [
    pytest.mark.nightly("takes ten minutes"),
    pytest.mark.timeout(1800),
]
# The API tests use this address, as if a web server ran all services.
FRONT_PORT = 80


@pytest.fixture(scope="module")
def tempest() -> Path:
    """Return the command ``tempest``."""
    if not (layout.CONF / "nova.conf").exists():
        servers.absent("tempest", f"it runs only beside a testbed, and {layout.HOME} has none")
    venv = layout.HOME / "tempest"
    try:
        packages.install_over(venv, layout.SOURCE / "requirements-tempest.txt")
    except Unreachable as error:
        servers.absent("tempest", str(error))
    return venv / "bin" / "tempest"


@pytest.fixture
def host(cloud: Connection) -> Iterator[str]:
    """Return the host that the tests register; all others take no servers meanwhile.

    The tests expect that a server without a reservation finds no host.
    """
    first, *others = cloud.compute.services(binary="nova-compute")
    with ExitStack() as stack:
        for service in others:
            if service.status == "enabled":
                stack.callback(cloud.compute.enable_service, service)
                cloud.compute.disable_service(service, disabled_reason="climate's tests run")
        yield first.host


@pytest.fixture
def climate(
    deploy: Deploy, host: str, administrator: Account, tmp_path: Path
) -> Iterator[Deployment]:
    """Return climate, to which the catalog leads, and prepare a workspace of tempest."""
    nodes = [each.name for each in administrator.cloud.compute.hypervisors()]
    made = deploy(
        "blazar",
        [host, *settings.HOSTS, nodes[0]],
        manager__plugins="physical.host.plugin,virtual.instance.plugin,flavor.instance.plugin",
        nova__server_groups="true",
    )
    made.start_manager()
    _write_config(tmp_path / "tempest.conf", administrator)
    with _in_catalog(administrator.cloud, made.url):
        yield made


@contextmanager
def _in_catalog(cloud: Connection, url: str) -> Iterator[None]:
    """Let the catalog lead to ``url`` for reservations."""
    (service,) = cloud.identity.services(type="reservation")
    endpoints = list(cloud.identity.endpoints(service_id=service.id))
    before = [(endpoint.id, endpoint.url) for endpoint in endpoints]
    for id_, _ in before:
        cloud.identity.update_endpoint(id_, url=url)
    try:
        yield
    finally:
        for id_, old in before:
            cloud.identity.update_endpoint(id_, url=old)


def _write_config(path: Path, administrator: Account) -> None:
    given = administrator.environment
    flavor, image = guests.smallest(administrator.cloud)
    config = ConfigParser()
    config.read_dict(
        {
            "auth": {
                "admin_username": given["OS_USERNAME"],
                "admin_password": given["OS_PASSWORD"],
                "admin_project_name": given["OS_PROJECT_NAME"],
                "admin_domain_name": "Default",
                "create_isolated_networks": "false",
            },
            "identity": {"uri_v3": given["OS_AUTH_URL"], "auth_version": "v3"},
            "compute": {"flavor_ref": flavor, "image_ref": image, "build_interval": "1"},
            "validation": {"run_validation": "false"},
            "service_available": {"neutron": "false", "swift": "false"},
            "resource_reservation": {"lease_interval": "1"},
            "oslo_concurrency": {"lock_path": str(path.parent / "locks")},
        }
    )
    with path.open("w") as file:
        config.write(file)


def _run(tempest: Path, home: Path, what: str) -> dict[str, int]:
    """Run tests of the plug-in; return how many passed, failed and were skipped."""
    environment = {"HOME": str(home), "PATH": f"{tempest.parent}:/usr/bin:/bin"}
    subprocess.run([tempest, "init", "site"], cwd=home, env=environment, check=True, timeout=60)
    command: list[str | Path] = [tempest, "run", "--workspace", "site", "--serial", "--regex"]
    ran = subprocess.run(
        [*command, f"blazar_tempest_plugin.tests.{what}", "--config-file", home / "tempest.conf"],
        cwd=home / "site",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    sys.stdout.write(ran.stdout + ran.stderr)  # pytest shows it if the test fails
    found = re.findall(r"^ - (Passed|Failed|Skipped): (\d+)$", ran.stdout, re.MULTILINE)
    return {name: int(count) for name, count in found}


def _need_front_port() -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", FRONT_PORT))
        except OSError as error:
            servers.absent("tempest", f"its API tests need port {FRONT_PORT}: {error.strerror}")


def test_the_api_tests_pass(tempest: Path, climate: Deployment, tmp_path: Path) -> None:
    _need_front_port()
    targets = {
        "/compute/": f"http://127.0.0.1:{layout.PORTS['nova-api']}/",
        "/reservation/": climate.url.removesuffix("v1"),
    }
    proxied = {path: {"target": url, "remove_prefix": True} for path, url in targets.items()}
    with listening(ProxyMiddleware(NotFound(), proxied), FRONT_PORT):
        found = _run(tempest, tmp_path, "api")
    assert found == {"Passed": 22, "Skipped": 0, "Failed": 0}


@pytest.mark.usefixtures("climate")
def test_the_scenarios_pass(tempest: Path, tmp_path: Path) -> None:
    assert _run(tempest, tmp_path, "scenario") == {"Passed": 8, "Skipped": 0, "Failed": 0}
