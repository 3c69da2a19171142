"""Instances in the cloud of made-up hosts: for demos and tests, never for use."""

from collections.abc import Mapping, Sequence
from typing import Any

from oslo_config.cfg import ConfigOpts

from climate.core.lease import Reservation
from climate.plugins.simulated import SimulatedCloud


class SimulatedInstances:
    """Reserved instances, of which nothing but the reservation is made up."""

    def __init__(self, conf: ConfigOpts) -> None:
        """Share the settings, and so the journal, with the hosts' cloud."""
        self._cloud = SimulatedCloud(conf)

    def ensure_slots(
        self, reservation: Reservation, project_id: str, hosts: Sequence[str]
    ) -> Mapping[str, Any]:
        """Write down who may boot where, unless it is as it was."""
        wanted = {"reservation": reservation.id, "project": project_id, "on": " ".join(hosts)}
        if self._slots(reservation) != wanted:
            self._cloud.act("ensure_slots", **wanted)
        return {}

    def delete_slots(self, reservation: Reservation) -> None:
        """Write down that nobody may any more, unless that is so."""
        if self._slots(reservation):
            self._cloud.act("delete_slots", reservation=reservation.id)

    def _slots(self, reservation: Reservation) -> Mapping[str, Any] | None:
        """Return what was last done about a reservation, if it was not the last thing to do."""
        mine = [one for one in self._cloud.effects() if one.get("reservation") == reservation.id]
        if not mine or mine[-1]["effect"] == "delete_slots":
            return None
        return {name: value for name, value in mine[-1].items() if name != "effect"}
