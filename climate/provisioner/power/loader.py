"""Loads the power drivers of installed packages, by entry point."""

from collections.abc import Mapping

from stevedore import ExtensionManager

from climate.provisioner.power.driver import PowerDriver

POWER_DRIVERS = "climate.power_drivers"


def load_drivers() -> Mapping[str, PowerDriver]:
    """Return the drivers by name, without those that fail to load: these count as unknown."""
    extensions: ExtensionManager[PowerDriver] = ExtensionManager(POWER_DRIVERS, invoke_on_load=True)
    return {each.name: each.obj for each in extensions if each.obj is not None}
