"""The state of a resource for people, in one word. Pure."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from climate.core.provisioning.preparation import OPEN, PreparationState
from climate.core.provisioning.shutdown import ShutdownState


class HostState(StrEnum):
    """The state of a resource: what a booking of it can expect now.

    ``ready`` and ``off`` are bookable; a host that is ``off`` gets power before its next lease.
    ``preparing``: a provisioner gets the host ready, or will soon. ``set_aside``: the host is in
    quarantine. ``failing``: the resource does not work or is out of service in the cloud, or its
    preparation failed.
    """

    READY = "ready"
    PREPARING = "preparing"
    OFF = "off"
    SET_ASIDE = "set_aside"
    FAILING = "failing"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What decides the state. The defaults are right for resources that are no hosts.

    ``preparation`` is the progress of the host's earliest preparation that is not over,
    ``shutdown`` that of its shutdown that is not over. ``up`` is what the cloud reported last;
    None: it has not reported the host yet. Without provisioning, only ``reservable`` counts: the
    other facts may be out of date.
    """

    reservable: bool
    is_quarantined: bool = False
    preparation: PreparationState | None = None
    shutdown: ShutdownState | None = None
    up: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """The facts of a resource with their times; for a resource that is no host, only ``facts``.

    ``needed_at`` and ``ready_at`` are those of the preparation in ``facts``. The cloud reported
    ``facts.up`` at ``seen_at``. The host has been off since ``off_at``. ``set_aside`` is the reason
    of its quarantine.
    """

    facts: HostFacts
    needed_at: datetime | None = None
    ready_at: datetime | None = None
    seen_at: datetime | None = None
    off_at: datetime | None = None
    set_aside: str | None = None
    set_aside_at: datetime | None = None

    @property
    def state(self) -> HostState:
        """The state that the facts amount to."""
        return host_state(self.facts)


#: States of a shutdown in which the host has no power, or loses it.
IS_OFF = (ShutdownState.ACCEPTED, ShutdownState.OFF)


def host_state(facts: HostFacts) -> HostState:
    """Return the state that the facts amount to. A preparation counts more than power."""
    if facts.is_quarantined:
        return HostState.SET_ASIDE
    if not facts.reservable or facts.preparation is PreparationState.FAILED:
        return HostState.FAILING
    if facts.preparation in OPEN:
        return HostState.PREPARING
    if facts.preparation is PreparationState.READY:
        return HostState.READY  # the cloud may not have noticed yet that the host is up
    return _by_power(facts)


def _by_power(facts: HostFacts) -> HostState:
    if facts.shutdown is ShutdownState.WAKING:
        return HostState.PREPARING
    is_off = facts.shutdown in IS_OFF or facts.up is False
    return HostState.OFF if is_off else HostState.READY
