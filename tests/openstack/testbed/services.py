"""The services of the cloud, and their commands."""

from collections.abc import Iterator

from tests.openstack.testbed import layout
from tests.openstack.testbed.daemons import Daemon


def catalog() -> str:
    """Return a line for each service: its user, its type and its address."""
    at = {name: f"http://127.0.0.1:{port}" for name, port in layout.PORTS.items()}
    blazar = [f"blazar blazar {at['blazar-api']}/v1"] if layout.WITH_BLAZAR else []
    lines = [
        f"placement placement {at['placement']}",
        f"glance image {at['glance']}",
        f"nova compute {at['nova-api']}/v2.1",
        f"neutron network {at['neutron']}",
        f"cinder block-storage {at['cinder-api']}/v3/$(project_id)s",
        f"heat orchestration {at['heat-api']}/v1/$(project_id)s",
        f"climate reservation {layout.RESERVATION_URL}",
        *blazar,
    ]
    return "\n".join(lines)


def apis() -> Iterator[Daemon]:
    """Return the services that need only their databases to start, Keystone first."""
    conf = str(layout.CONF)
    # nova-api takes the first of its files for that of its WSGI pipeline.
    nova = f"{layout.VENV}/etc/nova/api-paste.ini;{conf}/nova.conf"
    keystone = {"OS_KEYSTONE_CONFIG_DIR": conf, "OS_KEYSTONE_CONFIG_FILES": "keystone.conf"}
    yield _api("keystone", "keystone.wsgi.api", *_config("keystone"), **keystone)
    yield _api("placement", "placement.wsgi.api", OS_PLACEMENT_CONFIG_DIR=conf)
    yield _api("neutron", "neutron.wsgi.api", OS_NEUTRON_CONFIG_FILES=f"{conf}/neutron.conf")
    yield _api("nova-api", "nova.wsgi.osapi_compute", OS_NOVA_CONFIG_FILES=nova)
    yield _api("glance", "glance.wsgi.api", OS_GLANCE_CONFIG_DIR=conf)
    yield _api("cinder-api", "cinder.wsgi.api", *_config("cinder"))
    yield _api("heat-api", "heat.wsgi.api", *_config("heat"))
    if layout.WITH_BLAZAR:
        yield _api("blazar-api", "blazar.wsgi.api", OS_BLAZAR_CONFIG_DIR=conf)


def workers() -> Iterator[Daemon]:
    """Return the services that read the catalog when they start."""
    yield _worker("nova-conductor", "nova")
    yield _inside("nova-compute", "hosts", *_config("nova"), FAKE_HOSTS=layout.HOSTS)
    yield _worker("nova-scheduler", "nova")
    yield _worker("cinder-scheduler", "cinder")
    yield _worker("cinder-volume", "cinder")
    yield _worker("heat-engine", "heat")
    if layout.WITH_BLAZAR:
        yield _worker("blazar-manager", "blazar")


def compute(host: str) -> Daemon:
    """Return the command of an additional compute service."""
    return _inside(f"nova-compute-{host}", "hosts", *_config("nova"), FAKE_HOSTS=host)


def _api(name: str, module: str, *arguments: str, **environment: str) -> Daemon:
    port = layout.PORTS[name]
    return _inside(name, "serve", name, module, str(port), *arguments, **environment)


def _inside(name: str, module: str, *arguments: str, **environment: str) -> Daemon:
    """Return the command of a program in OpenStack's virtual environment."""
    command = [str(layout.BIN / "python"), "-m", f"climate_testbed.{module}", *arguments]
    return Daemon(name, command, environment, layout.PORTS.get(name))


def _worker(name: str, configuration: str) -> Daemon:
    return Daemon(name, [str(layout.BIN / name), *_config(configuration)])


def _config(name: str) -> list[str]:
    return ["--config-file", str(layout.CONF / f"{name}.conf")]
