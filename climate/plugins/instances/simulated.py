"""Instances in the cloud of made-up hosts: for demos and tests, never for use."""

from collections.abc import Mapping, Sequence
from typing import Any

from oslo_config.cfg import ConfigOpts

from climate.plugins.base import Asker
from climate.plugins.instances.cloud import Boot, Flavor, Size, Slots
from climate.plugins.simulated_journal import Journal

_GPU = {"resources:CUSTOM_GPU": "1", "trait:CUSTOM_GPU_HOST": "required"}
FLAVORS = {
    one.id: one
    for one in (
        Flavor("small", "m1.small", 1, 2048, 20, 0, 0, {}),
        Flavor("large", "m1.large", 4, 8192, 80, 10, 512, {"hw:mem_page_size": "any"}),
        Flavor("gpu", "g1.large", 4, 8192, 80, 0, 0, _GPU),
    )
}
_EFFECTS = frozenset({"open_slots", "set_slots", "clear_host", "close_slots", "delete_slots"})


class SimulatedInstances:
    """Slots of which all but the reservation is made up (see InstanceCloud for the methods)."""

    acts_as_user = False

    def __init__(self, conf: ConfigOpts) -> None:
        """Share the settings, and so the journal, with the hosts' cloud."""
        self.world = Journal(conf)

    def find_flavor(self, flavor_id: str, _project_id: str) -> Flavor | None:
        """Return one of three flavors, which everybody may use."""
        return FLAVORS.get(flavor_id)

    def check_image(self, _image_id: str, _asker: Asker) -> None:
        """Have any image."""

    def open_slots(self, reservation_id: str, project_id: str, size: Size) -> Mapping[str, Any]:
        """Write down who may boot what, unless it is so."""
        mine = self.slots().get(reservation_id)
        if mine is None or project_id not in mine.projects:
            amounts = " ".join(f"{name}={amount}" for name, amount in sorted(size.amounts.items()))
            self._act("open_slots", reservation_id, project=project_id, size=amounts)
        return {}

    def slot_hosts(self, reservation_id: str) -> Sequence[str]:
        """Return the hosts on which slots are."""
        mine = self.slots().get(reservation_id)
        return sorted(mine.hosts) if mine else []

    def set_slots(self, reservation_id: str, host: str, count: int) -> None:
        """Write down how many there are on a host, unless it is so."""
        mine = self.slots().get(reservation_id)
        if mine is None or mine.hosts.get(host) != count:
            self._act("set_slots", reservation_id, host=host, count=str(count))

    def boot(self, _trust_id: str | None, boot: Boot) -> Sequence[str]:
        """Write down which servers were booted, unless they are there."""
        made = [f"{boot.reservation_id}-{n}" for n in range(boot.known + 1, boot.amount + 1)]
        for server in made:
            if server not in self.slot_servers(boot.reservation_id):
                self._act("boot", boot.reservation_id, server=server)
        return made

    def keep_images(self, reservation_id: str) -> None:
        """Write down that there are images of servers, unless it is so."""
        kept = {one.get("image") for one in self._effects(reservation_id)}
        for server in self.slot_servers(reservation_id):
            if server not in kept:
                self._act("keep_image", reservation_id, image=server)

    def _effects(self, reservation_id: str) -> list[Mapping[str, str]]:
        """Return what happened to a reservation since there was nothing of it."""
        found: list[Mapping[str, str]] = []
        for effect in self.world.effects():
            if effect.get("reservation") == reservation_id:
                found = [] if effect["effect"] == "delete_slots" else [*found, effect]
        return found

    def clear_host(self, reservation_id: str, host: str) -> None:
        """Write down that there are none on a host, unless it is so."""
        if host in self.slot_hosts(reservation_id):
            self._act("clear_host", reservation_id, host=host)

    def close_slots(self, reservation_id: str) -> None:
        """Write down that nobody may boot any more, unless it is so."""
        mine = self.slots().get(reservation_id)
        if mine and mine.projects:
            self._act("close_slots", reservation_id)

    def delete_slots(self, reservation_id: str) -> None:
        """Write down that there is nothing any more, unless it is so."""
        if reservation_id in self.slots():
            self._act("delete_slots", reservation_id)

    def slots(self) -> Mapping[str, Slots]:
        """Return what the effects so far add up to."""
        found: dict[str, Slots] = {}
        for effect in self.world.effects():
            id_ = effect.get("reservation")
            if id_ and effect["effect"] in _EFFECTS:
                found[id_] = _after(found.get(id_, Slots((), {})), effect)
                if effect["effect"] == "delete_slots":
                    del found[id_]
        return found

    def slot_servers(self, reservation_id: str, host: str | None = None) -> Sequence[str]:
        """Return the servers that were booted; nobody knows on which host."""
        if host is not None:
            return ()
        return [one["server"] for one in self._effects(reservation_id) if "server" in one]

    def _act(self, effect: str, reservation_id: str, **details: str) -> None:
        self.world.act(effect, reservation=reservation_id, **details)


def _after(slots: Slots, effect: Mapping[str, str]) -> Slots:
    match effect["effect"]:
        case "open_slots":
            return Slots((effect["project"],), slots.hosts)
        case "close_slots":
            return Slots((), slots.hosts)
        case "set_slots":
            return Slots(slots.projects, {**slots.hosts, effect["host"]: int(effect["count"])})
        case "clear_host":
            rest = {host: n for host, n in slots.hosts.items() if host != effect["host"]}
            return Slots(slots.projects, rest)
    return slots
