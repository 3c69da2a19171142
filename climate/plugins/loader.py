"""Finding plugins and drivers by name; whatever is missing or broken stops the process.

A plugin that failed to load and was only logged would fail a lease later, at night.
"""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from oslo_config.cfg import ConfigOpts
from stevedore import DriverManager, NamedExtensionManager

from climate.clock import Clock
from climate.plugins.base import ResourcePlugin, Turn

PLUGINS = "climate.resource_plugins"
HOST_CLOUDS = "climate.host_clouds"
INSTANCE_CLOUDS = "climate.instance_clouds"
FLOATINGIP_CLOUDS = "climate.floatingip_clouds"
NETWORK_CLOUDS = "climate.network_clouds"
STACK_CLOUDS = "climate.stack_clouds"
VOLUME_CLOUDS = "climate.volume_clouds"
_MEMBERS = ("resource_type", "schema", "native_properties")


class BrokenPlugin(RuntimeError):
    """A plugin that the configuration names cannot be used."""


def load_plugins(
    conf: ConfigOpts, names: Sequence[str], turn: Turn, clock: Clock
) -> Mapping[str, ResourcePlugin]:
    """Return the enabled plugins by resource type; raises BrokenPlugin."""
    manager: NamedExtensionManager[ResourcePlugin] = NamedExtensionManager(
        PLUGINS,
        names=list(names),
        name_order=True,
        on_missing_entrypoints_callback=_missing,
        on_load_failure_callback=_broken,
    )
    offered = manager.entry_points_names()
    plugins: dict[str, ResourcePlugin] = {}
    for extension in manager:
        if offered.count(extension.name) > 1:
            raise BrokenPlugin(f"several packages offer a plugin {extension.name!r}: keep one")
        made = _made(extension.name, extension.plugin, conf, turn=turn, clock=clock)
        plugin = _checked(extension.name, made)
        if plugin.resource_type in plugins:
            raise BrokenPlugin(f"two enabled plugins serve {plugin.resource_type}: {names}")
        plugins[plugin.resource_type] = plugin
    return MappingProxyType(plugins)


def load_host_cloud(conf: ConfigOpts, turn: Turn) -> Any:  # noqa: ANN401 - a HostCloud, by name
    """Return the driver that reaches the hosts; raises BrokenPlugin."""
    return _load_cloud("host cloud", HOST_CLOUDS, conf, turn=turn)


def load_instance_cloud(conf: ConfigOpts, turn: Turn) -> Any:  # noqa: ANN401 - an InstanceCloud
    """Return the driver for instances in the cloud that has the hosts; raises BrokenPlugin."""
    return _load_cloud("instance cloud", INSTANCE_CLOUDS, conf, turn=turn)


def load_floatingip_cloud(conf: ConfigOpts, turn: Turn) -> Any:  # noqa: ANN401 - a FloatingipCloud
    """Return the driver that reaches floating IPs; raises BrokenPlugin."""
    return _load_cloud(
        "floating IP cloud", FLOATINGIP_CLOUDS, conf, "virtual:floatingip", turn=turn
    )


def load_network_cloud(conf: ConfigOpts, turn: Turn) -> Any:  # noqa: ANN401 - a NetworkCloud
    """Return the driver that reaches networks; raises BrokenPlugin."""
    return _load_cloud("network cloud", NETWORK_CLOUDS, conf, "virtual:network", turn=turn)


def load_stack_cloud(conf: ConfigOpts, turn: Turn) -> Any:  # noqa: ANN401 - a StackCloud
    """Return the driver that reaches stacks; raises BrokenPlugin."""
    return _load_cloud("stack cloud", STACK_CLOUDS, conf, "virtual:stack", turn=turn)


def load_volume_cloud(conf: ConfigOpts, turn: Turn, clock: Clock) -> Any:  # noqa: ANN401 - as above
    """Return the driver that reaches volumes; raises BrokenPlugin."""
    return _load_cloud(
        "volume cloud", VOLUME_CLOUDS, conf, "virtual:volume", turn=turn, clock=clock
    )


def _load_cloud(
    what: str, namespace: str, conf: ConfigOpts, group: str = "physical:host", **offered: object
) -> Any:  # noqa: ANN401 - as above
    name = conf[group].cloud
    try:
        found: DriverManager[Any] = DriverManager(namespace, name, on_load_failure_callback=_broken)
    except RuntimeError as error:
        raise BrokenPlugin(f"{what} {name!r}: {error}") from error
    return _made(name, found.driver, conf, **offered)


def _checked(name: str, plugin: Any) -> ResourcePlugin:  # noqa: ANN401 - found by name
    if not isinstance(plugin, ResourcePlugin):
        raise BrokenPlugin(f"plugin {name!r} is no ResourcePlugin: {plugin!r}")
    missing = [member for member in _MEMBERS if not hasattr(plugin, member)]
    if missing:
        raise BrokenPlugin(f"plugin {name!r} does not say its {', '.join(missing)}")
    return plugin


def _made(name: str, factory: Any, conf: ConfigOpts, **offered: object) -> Any:  # noqa: ANN401
    """Return what the factory makes of ``conf`` and of that for which it has a parameter."""
    try:
        parameters = inspect.signature(factory).parameters
        return factory(conf, **{name: one for name, one in offered.items() if name in parameters})
    except BrokenPlugin:
        raise
    except Exception as error:
        raise BrokenPlugin(f"plugin {name!r} cannot be set up: {error}") from error


def _missing(names: Iterable[str]) -> None:
    raise BrokenPlugin(f"no such plugin installed ({PLUGINS}): {', '.join(sorted(names))}")


def _broken(_manager: object, entry_point: Any, error: BaseException) -> None:  # noqa: ANN401
    raise BrokenPlugin(f"plugin {entry_point.name!r} cannot be loaded: {error}") from error
