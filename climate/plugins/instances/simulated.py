"""The simulated driver for instances (InstanceCloud), for demonstrations and tests."""

from collections.abc import Mapping, Sequence
from typing import Any

from oslo_config.cfg import ConfigOpts

from climate.plugins.base import Requester
from climate.plugins.instances.cloud import TARGETED, Boot, Flavor, Match, Size, Slots
from climate.plugins.simulated_journal import Journal

_GPU = {"resources:CUSTOM_GPU": "1", "trait:CUSTOM_GPU_HOST": "required"}
FLAVORS = {
    flavor.id: flavor
    for flavor in (
        Flavor("small", "m1.small", 1, 2048, 20, 0, 0, {}),
        Flavor("large", "m1.large", 4, 8192, 80, 10, 512, {"hw:mem_page_size": "any"}),
        Flavor("gpu", "g1.large", 4, 8192, 80, 0, 0, _GPU),
        Flavor("pci", "p1.small", 1, 2048, 20, 0, 0, {"pci_passthrough:alias": "gpu:1"}),
        Flavor("accel", "a1.small", 1, 2048, 20, 0, 0, {"accel:device_profile": "gpu"}),
    )
}
_EFFECTS = frozenset({"open_slots", "set_slots", "clear_host", "close_slots", "delete_slots"})


class SimulatedInstances:
    """An InstanceCloud (driver for instances) that computes its state from its journal."""

    acts_as_user = False
    makes_groups = False
    matches_openly = True

    def __init__(self, conf: ConfigOpts) -> None:
        self.journal = Journal(conf)

    def find_flavor(self, flavor_id: str, _project_id: str) -> Flavor | None:
        return FLAVORS.get(flavor_id)

    def check_image(self, _image_id: str, _requester: Requester) -> None:
        """Accept any image."""

    def open_slots(
        self, reservation_id: str, project_id: str, size: Size, match: Match = TARGETED
    ) -> Mapping[str, Any]:
        slots = self.slots().get(reservation_id)
        if slots is None or project_id not in slots.projects:
            flavors = {"flavors": match.flavor or "any"} if match.is_open else {}
            size_text = _text(size.amounts)
            self._act("open_slots", reservation_id, project=project_id, size=size_text, **flavors)
        return {}

    def slot_hosts(self, reservation_id: str) -> Sequence[str]:
        slots = self.slots().get(reservation_id)
        return sorted(slots.hosts) if slots else []

    def set_slots(
        self,
        reservation_id: str,
        host: str,
        count: int,
        room: Mapping[str, int] | None = None,
    ) -> None:
        slots = self.slots().get(reservation_id)
        if slots is None or slots.hosts.get(host) != count:
            rooms = {} if room is None else {"room": _text(room)}
            self._act("set_slots", reservation_id, host=host, count=str(count), **rooms)

    def boot(self, _trust_id: str | None, boot: Boot) -> Sequence[str]:
        servers = [f"{boot.reservation_id}-{n}" for n in range(boot.known + 1, boot.amount + 1)]
        for server in servers:
            if server not in self.slot_servers(boot.reservation_id):
                self._act("boot", boot.reservation_id, server=server)
        return servers

    def make_group(self, requester: Requester, reservation_id: str, *, apart: bool) -> str:
        raise NotImplementedError  # makes_groups

    def delete_group(self, reservation_id: str) -> None:
        raise NotImplementedError  # makes_groups

    def keep_images(self, reservation_id: str) -> None:
        saved = {effect.get("image") for effect in self._effects(reservation_id)}
        for server in self.slot_servers(reservation_id):
            if server not in saved:
                self._act("keep_image", reservation_id, image=server)

    def _effects(self, reservation_id: str) -> list[Mapping[str, str]]:
        """Return the recorded changes of a reservation after the last deletion of its slots.

        The state of the reservation is computed from these changes.
        """
        effects: list[Mapping[str, str]] = []
        for effect in self.journal.effects():
            if effect.get("reservation") == reservation_id:
                effects = [] if effect["effect"] == "delete_slots" else [*effects, effect]
        return effects

    def clear_host(self, reservation_id: str, host: str) -> None:
        if host in self.slot_hosts(reservation_id):
            self._act("clear_host", reservation_id, host=host)

    def close_slots(self, reservation_id: str) -> None:
        slots = self.slots().get(reservation_id)
        if slots and slots.projects:
            self._act("close_slots", reservation_id)

    def delete_slots(self, reservation_id: str) -> None:
        if reservation_id in self.slots():
            self._act("delete_slots", reservation_id)

    def slots(self) -> Mapping[str, Slots]:
        slots: dict[str, Slots] = {}
        for effect in self.journal.effects():
            id_ = effect.get("reservation")
            if id_ and effect["effect"] in _EFFECTS:
                slots[id_] = _after(slots.get(id_, Slots((), {})), effect)
                if effect["effect"] == "delete_slots":
                    del slots[id_]
        return slots

    def slot_servers(self, reservation_id: str, host: str | None = None) -> Sequence[str]:
        """Return the ids of a reservation's servers; none if ``host`` is set.

        The simulation does not assign servers to hosts.
        """
        if host is not None:
            return ()
        return [effect["server"] for effect in self._effects(reservation_id) if "server" in effect]

    def _act(self, effect: str, reservation_id: str, **details: str) -> None:
        self.journal.act(effect, reservation=reservation_id, **details)


def _text(amounts: Mapping[str, int]) -> str:
    return " ".join(f"{name}={amount}" for name, amount in sorted(amounts.items()))


def _after(slots: Slots, effect: Mapping[str, str]) -> Slots:
    match effect["effect"]:
        case "open_slots":
            return Slots((effect["project"],), slots.hosts)
        case "close_slots":
            return Slots((), slots.hosts)
        case "set_slots":
            return Slots(slots.projects, {**slots.hosts, effect["host"]: int(effect["count"])})
        case "clear_host":
            remaining = {host: n for host, n in slots.hosts.items() if host != effect["host"]}
            return Slots(slots.projects, remaining)
    return slots
