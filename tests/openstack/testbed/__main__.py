"""``python -m tests.openstack.testbed up | down | wipe``; each command can be repeated."""

import argparse
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from tests.openstack.testbed import daemons, layout, packages, schemas, servers, services, settings
from tests.openstack.testbed.layout import Failure, Unreachable

_BEGAN = time.monotonic()


def up() -> None:
    """Start the cloud from any state."""
    layout.UNREACHABLE.unlink(missing_ok=True)
    _expect_free_ports()
    for folder in (layout.CONF, layout.LOG, layout.RUN, layout.STATE):
        folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor() as pool:
        installed = pool.submit(packages.install_openstack)
        backing = pool.submit(_start_servers)
        mariadb, rabbitmq = backing.result()
        installed.result()
    _say("packages and servers are there")
    settings.write(mariadb, rabbitmq)
    schemas.make(mariadb, rabbitmq.url)
    if layout.WITH_BLAZAR:
        schemas.make_for_blazar(mariadb)
    _say("databases are there")
    _start_services()
    settings.write_openrc()
    _say(f"the cloud is up; for its administrator's credentials: . {layout.OPENRC}")


def down() -> None:
    """Stop all processes of the cloud, and keep its state."""
    backing = ["mariadb", "rabbitmq"]
    daemons.stop(*(name for name in daemons.known() if name not in backing))
    daemons.stop(*backing)


def wipe() -> None:
    """Stop the cloud and delete all but packages and schemas, also from external servers."""
    _expect_free_ports()
    daemons.stop(*(name for name in daemons.known() if name not in {"mariadb", "rabbitmq"}))
    if mariadb := servers.find_mariadb():
        schemas.drop(mariadb)
    if rabbitmq := servers.find_rabbitmq():
        rabbitmq.remove_virtual_host()
    down()
    for folder in (layout.STATE, layout.CONF, layout.LOG, layout.RUN):
        shutil.rmtree(folder, ignore_errors=True)
    layout.OPENRC.unlink(missing_ok=True)


def _start_servers() -> tuple[servers.MariaDB, servers.RabbitMQ]:
    # One after the other: apt-get does not like company.
    mariadb, rabbitmq = servers.start_mariadb(), servers.start_rabbitmq()
    servers.start_memcached()
    return mariadb, rabbitmq


def _start_services() -> None:
    """Start the services, and write the catalog before a service reads it."""
    apis = list(services.apis())
    for daemon in apis:
        daemon.start()
    apis[0].wait()
    _furnish("catalog")
    _say("keystone is furnished")
    for daemon in services.workers():
        daemon.start()
    for daemon in apis:
        daemon.wait()
    _say("all services answer")
    _furnish("resources")


def _furnish(stage: str) -> None:
    """Create the resources that the cloud lacks, inside its virtual environment."""
    given = {"CATALOG": services.catalog(), "FAKE_HOSTS": layout.HOSTS}
    done = subprocess.run(
        [layout.BIN / "python", "-m", "climate_testbed.furnish", stage],
        env=layout.environment(**settings.credentials(), **given),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Failure(f"the cloud could not be furnished ({stage}):\n{done.stderr.strip()}")


def _expect_free_ports() -> None:
    """Fail if another program uses one of our ports, perhaps another testbed."""
    for name, port in layout.PORTS.items():
        if daemons.answers(port) and not daemons.is_running(name):
            raise Failure(
                f"port {port} is taken, where {name} belongs. Set OPENSTACK_PORT_OFFSET=10000 to"
                " use others; or, if an OpenStack is there already, OS_AUTH_URL and so on"
            )


def _say(what: str) -> None:
    print(f"{time.monotonic() - _BEGAN:4.0f} s  {what}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="testbed", description=up.__doc__)
    parser.add_argument("command", choices=("up", "down", "wipe"))
    commands = {"up": up, "down": down, "wipe": wipe}
    try:
        commands[parser.parse_args().command]()
    except Unreachable as error:
        layout.UNREACHABLE.write_text(f"{error}\n")
        down()
        print(f"testbed: {error}", file=sys.stderr)
        return 1
    except Failure as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
