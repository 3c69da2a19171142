"""A fake Keystone with trusts, and a host plug-in that acts as the lease's user."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, cast

from oslo_config.cfg import ConfigOpts

from climate.core.lease.model import Lease, Reservation
from climate.plugins.base import Requester
from climate.plugins.hosts.plugin import HostPlugin
from climate.plugins.openstack.trusts import DeadTrust, Trust, Trusts
from tests.support.service import Story


@dataclass
class Keystone:
    """Keeps trusts; ``failing`` has the exception that a method raises, by the method's name."""

    kept: dict[str, Requester] = field(default_factory=dict)
    failing: dict[str, Exception] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    found: list[Trust] = field(default_factory=list)

    def make(self, requester: Requester, _now: datetime) -> str:
        self._fail("make")
        trust_id = f"trust-{len(self.kept) + 1}"
        self.kept[trust_id] = requester
        return trust_id

    def revoke(self, trust_id: str) -> None:
        self._fail("revoke")
        self.kept.pop(trust_id, None)

    def check(self, trust_id: str) -> None:
        self._fail("check")
        if trust_id in self.dead or trust_id not in self.kept:
            raise DeadTrust(f"the trust is dead: {trust_id[:5]}")

    def find_all(self) -> list[Trust]:
        return self.found

    def _fail(self, what: str) -> None:
        if what in self.failing:
            raise self.failing[what]


class Acting(HostPlugin):
    """A host plug-in that acts as the user, and prepares a reservation before the lease exists."""

    needs_preparation = True

    def __init__(self, conf: ConfigOpts) -> None:
        super().__init__(conf, lambda _: nullcontext())
        self.arranged: dict[str, str | None] = {}
        self.failing: dict[str, Exception] = {}
        self.meanwhile: Any = None

    def acts_as_user(self, params: Mapping[str, Any]) -> bool:
        return bool(params["before_end"] == "snapshot")

    def prepare(
        self, lease: Lease, reservation: Reservation, requester: Requester
    ) -> Mapping[str, Any]:
        self.arranged[reservation.id] = requester.token
        if self.meanwhile:
            self.meanwhile(lease)
        if error := self.failing.get("prepare"):
            raise error
        return {"arranged": "yes"}

    def discard(self, _lease: Lease, reservation: Reservation) -> None:
        if error := self.failing.get("discard"):
            raise error
        self.arranged.pop(reservation.id, None)

    def end(self, lease: Lease, reservation: Reservation, resources: Any) -> None:
        super().end(lease, reservation, resources)
        self.discard(lease, reservation)


def trusting(story: Story) -> tuple[Story, Keystone, Acting]:
    """Return the same service with the fake Keystone and plug-in."""
    keystone, acting = Keystone(), Acting(story.conf)
    plugins = {**story.runtime.plugins, acting.resource_type: acting}
    runtime = replace(story.runtime, plugins=plugins, trusts=cast("Trusts", keystone))
    return Story(story.conf, runtime, story.clock), keystone, acting
