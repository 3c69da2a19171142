"""Trying climate out: climate-standalone has all of a made-up cloud, and some of its hosts."""

from contextlib import suppress
from pathlib import Path

from oslo_config.cfg import ConfigOpts

from climate import bootstrap
from climate.core.errors import Conflict
from climate.manager.process.runtime import Runtime
from climate.manager.resources import registry as resources

_EVERY_PLUGIN = [
    "physical.host.plugin",
    "virtual.instance.plugin",
    "flavor.instance.plugin",
    "virtual.floatingip.plugin",
    "virtual.network.plugin",
    "virtual.volume.plugin",
    "virtual.stack.plugin",
]
_FIRST_HOSTS = 8


def keep_cloud(conf: ConfigOpts) -> None:
    """Let the made-up cloud have all it can, and outlive the process as its database does."""
    if conf["physical:host"].cloud == "simulated":
        conf.set_default("plugins", _EVERY_PLUGIN, group="manager")
    url = bootstrap.database_url(conf)
    if url.get_backend_name() == "sqlite" and url.database and not conf.simulated.journal:
        conf.set_override("journal", f"{Path(url.database)}.cloud", group="simulated")


def register_first_hosts(conf: ConfigOpts, runtime: Runtime) -> None:
    """Register some of its hosts."""
    for number in range(1, min(_FIRST_HOSTS, conf.simulated.hosts) + 1):
        with suppress(Conflict):  # another process found the same new database
            resources.register(runtime, "physical:host", f"sim-{number}")
