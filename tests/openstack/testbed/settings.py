"""Configuration of the services, from the templates in ``conf``."""

import base64
import os
from string import Template

from tests.openstack.testbed import layout
from tests.openstack.testbed.servers import MariaDB, RabbitMQ

_FOLDERS = (
    "cinder/volumes",
    "glance/images",
    "glance/staging",
    "glance/tasks",
    "nova/instances",
    "neutron",
)


def write(mariadb: MariaDB, rabbitmq: RabbitMQ) -> None:
    """Write the configuration of all services, and the files that they expect."""
    values = {
        "keystone": layout.KEYSTONE,
        "memcached": f"127.0.0.1:{layout.PORTS['memcached']}",
        "databases": mariadb.url(layout.PREFIX) + "_",
        "rabbitmq": rabbitmq.url,
        "keystone_port": str(layout.PORTS["keystone"]),
        "conf": str(layout.CONF),
        "state": str(layout.STATE),
        "venv": str(layout.VENV),
        "heat_plugins": str(layout.HEAT_PLUGINS),
    }
    for template in ("keystone", "placement", "glance-api", "nova", "neutron", "cinder", "heat"):
        _write(template, values)
    if layout.WITH_BLAZAR:
        _write("blazar", values)
    for folder in _FOLDERS:
        (layout.STATE / folder).mkdir(parents=True, exist_ok=True)
    for keys in ("fernet-keys", "credential-keys"):
        _write_keys(keys)


def write_openrc() -> None:
    """Write the administrator's credentials for a shell."""
    lines = [f"export {name}={value}\n" for name, value in credentials().items()]
    layout.OPENRC.write_text("".join(lines))


def credentials() -> dict[str, str]:
    """Return the environment with the administrator's credentials."""
    return {
        "OS_AUTH_URL": layout.KEYSTONE,
        "OS_USERNAME": "admin",
        "OS_PASSWORD": "secret",
        "OS_PROJECT_NAME": "admin",
        "OS_USER_DOMAIN_NAME": "Default",
        "OS_PROJECT_DOMAIN_NAME": "Default",
        "OS_REGION_NAME": "RegionOne",
        "OS_IDENTITY_API_VERSION": "3",
    }


def _write(name: str, values: dict[str, str]) -> None:
    values = {**values, "service": name.removesuffix("-api")}
    for part in ("login", "shared", name):
        text = (layout.SOURCE / "conf" / f"{part}.conf").read_text()
        values[part] = Template(text).substitute(values)
    (layout.CONF / f"{name}.conf").write_text(values[name])


def _write_keys(name: str) -> None:
    """Write the keys of ``keystone-manage fernet_setup``, which takes seconds."""
    folder = layout.STATE / "keystone" / name
    if folder.exists():
        return
    folder.mkdir(mode=0o700, parents=True)
    for number in ("0", "1"):
        (folder / number).write_bytes(base64.urlsafe_b64encode(os.urandom(32)))
