"""Prepares the simulated cloud of climate-standalone: enables all plug-ins and registers hosts."""

from contextlib import suppress
from pathlib import Path

from oslo_config.cfg import ConfigOpts

from climate.cmd import bootstrap
from climate.core.errors import Conflict
from climate.manager.process.runtime import Runtime
from climate.manager.resources import registry as resources

_ALL_PLUGINS = [
    "physical.host.plugin",
    "virtual.instance.plugin",
    "flavor.instance.plugin",
    "virtual.floatingip.plugin",
    "virtual.network.plugin",
    "virtual.volume.plugin",
    "virtual.stack.plugin",
]
_FIRST_HOSTS = 8


def configure_cloud(conf: ConfigOpts) -> None:
    """Set defaults for climate-standalone; if the cloud is simulated, enable all plug-ins.

    If the database is an SQLite file, the state of the simulated cloud is stored in a file next to
    the database. The option ``[simulated] journal`` can name another file.
    """
    if conf["physical:host"].cloud == "simulated":
        conf.set_default("plugins", _ALL_PLUGINS, group="manager")
    url = bootstrap.database_url(conf)
    if url.get_backend_name() == "sqlite" and url.database and not conf.simulated.journal:
        conf.set_override("journal", f"{Path(url.database)}.cloud", group="simulated")


def register_first_hosts(conf: ConfigOpts, runtime: Runtime) -> None:
    """Make the first eight hosts of the simulated cloud reservable, or all if there are fewer."""
    for number in range(1, min(_FIRST_HOSTS, conf.simulated.hosts) + 1):
        with suppress(Conflict):  # another process has registered it in the same new database
            resources.register(runtime, "physical:host", f"sim-{number}")
