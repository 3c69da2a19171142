"""The state of a resource in one word, for people. Pure."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from climate.core.provisioning.preparation import OPEN, PreparationState
from climate.core.provisioning.shutdown import ShutdownState


class HostState(StrEnum):
    """The state of a resource: what a lease that wants to use the resource can expect now.

    - ``ready``: the resource can be booked.
    - ``off``: the resource can be booked; a provisioner powers the host on before its next lease.
    - ``preparing``: a provisioner gets the host ready, or will do so soon.
    - ``set_aside``: the host is in quarantine.
    - ``failing``: the resource does not work or is out of service in the cloud, or its preparation
      failed.
    """

    READY = "ready"
    PREPARING = "preparing"
    OFF = "off"
    SET_ASIDE = "set_aside"
    FAILING = "failing"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """The facts that decide the state of a resource.

    ``preparation`` is the state of the host's earliest unfinished preparation. ``shutdown`` is the
    state of the host's unfinished shutdown. ``up`` is whether the host was up in the last report of
    the cloud (None: no report yet). If provisioning is disabled, only ``reservable`` and
    ``is_quarantined`` are set. For a resource that is not a host, only ``reservable`` is set.
    """

    reservable: bool
    is_quarantined: bool = False
    preparation: PreparationState | None = None
    shutdown: ShutdownState | None = None
    up: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """The facts that decide the state of a host, and their times.

    The preparation must be finished at ``needed_at``, and was finished at ``ready_at``.
    ``seen_at`` is when the cloud reported ``facts.up``. ``off_at`` is when the host went off.
    ``set_aside`` is the reason for the quarantine of the host. For a resource that is not a host,
    only ``facts`` is set.
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
        """The state of the resource, decided by ``facts``."""
        return host_state(self.facts)


#: States of a shutdown in which the host has no power, or loses it.
IS_OFF = (ShutdownState.ACCEPTED, ShutdownState.OFF)


def host_state(facts: HostFacts) -> HostState:
    """Return the state of a resource with these facts.

    The first of these that applies decides: quarantine, failure, preparation, power.
    """
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
