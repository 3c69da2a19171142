"""Loads the power drivers of all installed packages, by their entry points."""

from collections.abc import Mapping

from stevedore import ExtensionManager

from climate.provisioner.power.driver import PowerDriver

POWER_DRIVERS = "climate.power_drivers"


def load_drivers() -> Mapping[str, PowerDriver]:
    """Return the power drivers by name. A driver that cannot be loaded is left out."""
    extensions: ExtensionManager[PowerDriver] = ExtensionManager(POWER_DRIVERS, invoke_on_load=True)
    return {each.name: each.obj for each in extensions if each.obj is not None}
