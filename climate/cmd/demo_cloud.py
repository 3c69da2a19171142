"""The simulated cloud of climate-standalone: its plug-ins, its first hosts, and its journal.

The journal is a file with the state of the simulated cloud. Without a journal, each process has a
simulated cloud of its own, in memory.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from oslo_config.cfg import ConfigOpts

from climate.cmd.database import database_url
from climate.config.registry import Misconfigured
from climate.core.errors import Conflict
from climate.manager.process.runtime import Runtime
from climate.manager.resources import registry as resources
from climate.plugins.loader import simulated_types

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


def share_cloud(conf: ConfigOpts) -> None:
    """Use the simulated cloud of climate-standalone, if one has used the configured database."""
    journal = _default_journal(conf)
    if journal is not None and journal.exists():
        configure_cloud(conf)


def check_shared(conf: ConfigOpts, resource_types: Iterable[str]) -> None:
    """Raise Misconfigured if only other processes know the state of the simulated cloud.

    ``resource_types`` are the types that plug-ins serve. A real cloud of a type can be read by any
    process.
    """
    simulated = simulated_types(conf, resource_types)
    journal = conf.simulated.journal
    if not simulated or (journal and Path(journal).exists()):
        return
    reason = f"there is no file {journal}" if journal else "[simulated] journal is not set"
    raise Misconfigured(
        f"cannot see the simulated cloud of {', '.join(simulated)}, which other processes have in"
        f" memory: {reason}; set [simulated] journal to one file for all programs, and restart them"
    )


def configure_cloud(conf: ConfigOpts) -> None:
    """Set defaults for climate-standalone; if the cloud is simulated, enable all plug-ins.

    If the database is an SQLite file, the state of the simulated cloud is stored in a file next to
    the database. The option ``[simulated] journal`` can name another file.
    """
    if conf["physical:host"].cloud == "simulated":
        conf.set_default("plugins", _ALL_PLUGINS, group="manager")
    journal = _default_journal(conf)
    if journal is not None:
        conf.set_override("journal", str(journal), group="simulated")


def _default_journal(conf: ConfigOpts) -> Path | None:
    """Return the path of a journal next to the SQLite database.

    Return None if the database is no SQLite file, or if the configuration names another journal.
    """
    url = database_url(conf)
    if conf.simulated.journal or url.get_backend_name() != "sqlite":
        return None
    return Path(f"{url.database}.cloud")


def create_journal(conf: ConfigOpts, resource_types: Iterable[str]) -> None:
    """Create the journal if a cloud is simulated, so that other programs find it.

    Raises Misconfigured if the file cannot be created.
    """
    journal = conf.simulated.journal
    if journal and simulated_types(conf, resource_types):
        try:
            Path(journal).touch()
        except OSError as error:
            raise Misconfigured(f"[simulated] journal: {error}") from error


def register_first_hosts(conf: ConfigOpts, runtime: Runtime) -> None:
    """Make the first eight hosts of the simulated cloud reservable, or all if there are fewer."""
    for number in range(1, min(_FIRST_HOSTS, conf.simulated.hosts) + 1):
        with suppress(Conflict):  # another process has registered it in the same new database
            resources.register(runtime, "physical:host", f"sim-{number}")
