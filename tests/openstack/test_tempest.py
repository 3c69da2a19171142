"""The tests of blazar-tempest-plugin, unmodified, run against climate in the catalog."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests
from openstack.connection import Connection

from tests.openstack import guests, settings
from tests.openstack.accounts import Account
from tests.openstack.conftest import Deploy
from tests.openstack.testbed import layout

# Its scenarios wait for leases that last one or two minutes.
pytestmark = [
    pytest.mark.nightly("takes ten minutes"),
    pytest.mark.timeout(1800),
]
PACKAGES = ("tempest==47.0.0", "blazar-tempest-plugin==0.19.0")
API_TESTS, SCENARIOS = 22, 8
# The API tests use this address, as if a web server ran all services.
FRONT_PORT = 80


@pytest.fixture(scope="module")
def tempest() -> Path:
    """Return the command ``tempest``, in an environment of its own; skip without a registry."""
    home = layout.HOME / "tempest"
    command = home / "bin" / "tempest"
    if not command.exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        pip = [home / "bin" / "pip", "install", "--quiet", *PACKAGES]
        if subprocess.run(pip, check=False).returncode:
            pytest.skip("no package registry answers, so tempest cannot be installed")
    return command


@pytest.fixture
def host(cloud: Connection) -> Iterator[str]:
    """Return the host that the tests register; all others take no servers meanwhile.

    The tests expect that a server without a reservation finds no host.
    """
    services = list(cloud.compute.services(binary="nova-compute"))
    others = [service for service in services[1:] if service.status == "enabled"]
    for service in others:
        cloud.compute.disable_service(service, disabled_reason="blazar-tempest-plugin runs")
    yield services[0].host
    for service in others:
        cloud.compute.enable_service(service)


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


class _Front(BaseHTTPRequestHandler):
    """Forwards ``/NAME/...`` to the address of the service NAME."""

    def __init__(self, targets: dict[str, str], *arguments: object) -> None:
        self._targets = targets
        super().__init__(*arguments)  # type: ignore[arg-type]

    def _forward(self) -> None:
        _, name, rest = self.path.split("/", 2)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {key: value for key, value in self.headers.items() if key.lower() != "host"}
        url = f"{self._targets[name]}/{rest}"
        answer = requests.request(self.command, url, data=body, headers=headers, timeout=60)
        self.send_response(answer.status_code)
        self.send_header("Content-Type", answer.headers.get("Content-Type", "text/plain"))
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _forward  # noqa: N815 - their names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        """Say nothing."""


@contextmanager
def _front(targets: dict[str, str]) -> Iterator[None]:
    try:
        server = ThreadingHTTPServer(("127.0.0.1", FRONT_PORT), partial(_Front, targets))
    except OSError as error:
        pytest.skip(f"the API tests need port {FRONT_PORT} of the loopback: {error}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


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
    command = [tempest, "run", "--workspace", "site", "--serial", "--regex"]
    ran = subprocess.run(
        [*command, f"blazar_tempest_plugin.tests.{what}", "--config-file", home / "tempest.conf"],
        cwd=home / "site",
        env={"HOME": str(home), "PATH": f"{tempest.parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    sys.stdout.write(ran.stdout + ran.stderr)  # pytest shows it if the test fails
    found = re.findall(r"^ - (Passed|Failed|Skipped): (\d+)$", ran.stdout, re.MULTILINE)
    return {name: int(count) for name, count in found}


def test_all_tests_of_the_plug_in_pass(
    tempest: Path, deploy: Deploy, host: str, administrator: Account, tmp_path: Path
) -> None:
    nodes = [each.name for each in administrator.cloud.compute.hypervisors()]
    climate = deploy(
        "blazar",
        [host, *settings.HOSTS, nodes[0]],
        manager__plugins="physical.host.plugin,virtual.instance.plugin,flavor.instance.plugin",
        nova__server_groups="true",
    )
    climate.start_manager()
    _write_config(tmp_path / "tempest.conf", administrator)
    environment = {"HOME": str(tmp_path), "PATH": f"{tempest.parent}:/usr/bin:/bin"}
    subprocess.run([tempest, "init", "site"], cwd=tmp_path, env=environment, check=True)
    nova = f"http://127.0.0.1:{layout.PORTS['nova-api']}"
    targets = {"compute": nova, "reservation": climate.url.removesuffix("/v1")}
    with _in_catalog(administrator.cloud, climate.url), _front(targets):
        assert _run(tempest, tmp_path, "api") == {"Passed": API_TESTS, "Skipped": 0, "Failed": 0}
        assert _run(tempest, tmp_path, "scenario") == {
            "Passed": SCENARIOS,
            "Skipped": 0,
            "Failed": 0,
        }
