"""Drivers by name: ours, and those of others that offer one by entry point."""

from collections.abc import Mapping

from stevedore import ExtensionManager

from climate.provisioner.power.driver import PowerDriver

POWER_DRIVERS = "climate.power_drivers"


def load_drivers() -> Mapping[str, PowerDriver]:
    """Return all drivers that can be loaded; one that cannot is missed by whoever names it."""
    found: ExtensionManager[PowerDriver] = ExtensionManager(POWER_DRIVERS, invoke_on_load=True)
    return {one.name: one.obj for one in found if one.obj is not None}
