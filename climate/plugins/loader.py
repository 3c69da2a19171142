"""Loads plug-ins, cloud drivers, filters and weighers by the names in the configuration.

If any of these is missing or broken, the process does not start, so that operators see the error
before a lease fails.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from oslo_config.cfg import ConfigOpts
from stevedore import DriverManager, NamedExtensionManager

from climate.clock import Clock
from climate.config.registry import Misconfigured
from climate.core.errors import OperatorError
from climate.core.matching.selection import Screen, Selection
from climate.plugins.base import ResourcePlugin, Turn
from climate.plugins.filters.nova_screen import load_screen

PLUGINS = "climate.resource_plugins"
# By resource type: NOUN in the namespace ``climate.NOUN_clouds`` of entry points, and the section
# of the configuration with the option ``cloud``.
_CLOUDS = {
    "physical:host": ("host", "physical:host"),
    "virtual:instance": ("instance", "physical:host"),
    "virtual:floatingip": ("floatingip", "virtual:floatingip"),
    "virtual:network": ("network", "virtual:network"),
    "virtual:stack": ("stack", "virtual:stack"),
    "virtual:volume": ("volume", "virtual:volume"),
}
_MEMBERS = ("resource_type", "schema", "native_properties")
# Former names of optional members of ResourcePlugin, with their present names. If a plug-in still
# defined a member by its former name, climate would ignore it without an error.
_RENAMED = {
    "arranges": "needs_preparation",
    "arrange": "prepare",
    "abandon": "discard",
    "replans": "looks_up_changes",
    "children": "members",
    "foretold": "preview_details",
    "look": "refresh",
    "rest": "disable_service",
    "rouse": "enable_service",
}


class BrokenPlugin(OperatorError):
    """Raised if a plug-in or driver that the configuration names is missing or broken."""


def load_plugins(
    conf: ConfigOpts, names: Sequence[str], turn: Turn, clock: Clock
) -> Mapping[str, ResourcePlugin]:
    """Create the configured plug-ins; return them by resource type, such as ``physical:host``.

    ``names`` are entry points such as ``physical.host.plugin``. ``turn`` (advisory locks) and
    ``clock`` are passed to those plug-ins whose constructor has such a parameter. Raises
    BrokenPlugin
    if a plug-in is missing or broken, or if two plug-ins serve the same type.
    """
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
        loaded = _made(extension.name, extension.plugin, conf, turn=turn, clock=clock)
        plugin = _checked(extension.name, loaded)
        if plugin.resource_type in plugins:
            raise BrokenPlugin(f"two enabled plugins serve {plugin.resource_type}: {names}")
        plugins[plugin.resource_type] = plugin
    return MappingProxyType(plugins)


def load_cloud(resource_type: str, conf: ConfigOpts, **offered: object) -> Any:  # noqa: ANN401
    """Create and return the cloud driver that ``conf`` names for a resource type.

    The constructor of the driver receives ``conf``. It also receives each ``offered`` argument for
    which it has a parameter of the same name. Constructors of climate's drivers send no request.
    Raises BrokenPlugin if the driver is missing or broken.
    """
    noun, group = _CLOUDS[resource_type]
    name = conf[group].cloud
    namespace = f"climate.{noun}_clouds"
    try:
        manager: DriverManager[Any] = DriverManager(
            namespace, name, on_load_failure_callback=_broken
        )
    except RuntimeError as error:
        raise BrokenPlugin(f"{noun} cloud {name!r}: {error}") from error
    return _made(name, manager.driver, conf, **offered)


def simulated_types(conf: ConfigOpts, resource_types: Iterable[str]) -> list[str]:
    """Return those of the resource types whose cloud is simulated, as ``conf`` says."""
    return [
        name
        for name in resource_types
        if name in _CLOUDS and conf[_CLOUDS[name][1]].cloud == "simulated"
    ]


def _checked(name: str, plugin: Any) -> ResourcePlugin:  # noqa: ANN401
    if not isinstance(plugin, ResourcePlugin):
        raise BrokenPlugin(f"plugin {name!r} is not a ResourcePlugin: {plugin!r}")
    missing = [member for member in _MEMBERS if not hasattr(plugin, member)]
    if missing:
        raise BrokenPlugin(f"plugin {name!r} does not define {', '.join(missing)}")
    for old, new in _RENAMED.items():
        if hasattr(plugin, old):
            raise BrokenPlugin(f"plugin {name!r} defines {old}, which is now {new}")
    return plugin


def _made(name: str, factory: Any, conf: ConfigOpts, **offered: object) -> Any:  # noqa: ANN401
    """Call ``factory`` with ``conf``, and with those ``offered`` arguments that it accepts.

    ``name`` is for error messages.
    """
    try:
        parameters = inspect.signature(factory).parameters
        return factory(conf, **{key: value for key, value in offered.items() if key in parameters})
    except BrokenPlugin:
        raise
    except Exception as error:
        raise BrokenPlugin(f"plugin {name!r} cannot be set up: {error}") from error


def _missing(names: Iterable[str]) -> None:
    raise BrokenPlugin(f"no such plugin installed ({PLUGINS}): {', '.join(sorted(names))}")


def _broken(_manager: object, entry_point: Any, error: BaseException) -> None:  # noqa: ANN401
    raise BrokenPlugin(f"plugin {entry_point.name!r} cannot be loaded: {error}") from error


FILTERS = "climate.filters"
WEIGHERS = "climate.weighers"


def load_selection(conf: ConfigOpts) -> Selection:
    """Load the filters and weighers that the options ``[manager] filters`` and ``weighers`` name.

    Also load the filters of Nova that the option ``[selection] nova_filters`` names. Raises
    Misconfigured if one of them is missing or broken.
    """
    weighers = [_multiplied(text) for text in conf.manager.weighers]
    found = _load(WEIGHERS, "weighers", [name for name, _ in weighers])
    return Selection(
        filters=tuple(_load(FILTERS, "filters", conf.manager.filters)),
        weighers=tuple(
            (weigher, multiplier) for weigher, (_, multiplier) in zip(found, weighers, strict=True)
        ),
        screens=_screens(conf),
    )


def _screens(conf: ConfigOpts) -> tuple[Screen, ...]:
    names, files = conf.selection.nova_filters, conf.selection.nova_config_files
    return (load_screen(names, files),) if names else ()


def _multiplied(text: str) -> tuple[str, float]:
    """Parse text such as ``fewest_left=2``; return the weigher's name and its multiplier.

    Without ``=``, the multiplier is 1. Raises Misconfigured if the multiplier is not a finite
    number.
    """
    name, given, number = (part.strip() for part in text.partition("="))
    try:
        multiplier = float(number) if given else 1.0
    except ValueError:
        multiplier = math.nan
    if not math.isfinite(multiplier):
        raise Misconfigured(f"[manager] weighers: {text!r} is not of the form NAME=NUMBER")
    return name, multiplier


def _load(namespace: str, option: str, names: Sequence[str]) -> list[Callable[..., Any]]:
    """Return the functions of the entry points ``names`` in the group ``namespace``, in order.

    ``option`` is the configuration option that has these names. Raises Misconfigured if a name is
    repeated, if no package or several packages offer it, or if it is not that of a function.
    """

    def missing(absent: Iterable[str]) -> None:
        raise Misconfigured(
            f"[manager] {option}: no installed package offers {', '.join(sorted(absent))}"
            f" ({namespace})"
        )

    def broken(_manager: object, entry_point: Any, error: BaseException) -> None:  # noqa: ANN401
        raise Misconfigured(f"[manager] {option}: {entry_point.name}: {error}") from error

    if repeated := sorted({name for name in names if list(names).count(name) > 1}):
        raise Misconfigured(f"[manager] {option}: {', '.join(repeated)} is named twice")
    manager: NamedExtensionManager[Any] = NamedExtensionManager(
        namespace,
        names=list(names),
        name_order=True,
        on_missing_entrypoints_callback=missing,
        on_load_failure_callback=broken,
    )
    offered = manager.entry_points_names()
    for extension in manager:
        if offered.count(extension.name) > 1:
            raise Misconfigured(f"[manager] {option}: several packages offer {extension.name}")
        if not callable(extension.plugin):
            raise Misconfigured(f"[manager] {option}: {extension.name} is not a function")
    return [extension.plugin for extension in manager]
