"""The state of a resource for people."""

import pytest

from climate.core.provisioning.host_state import HostFacts, HostState, host_state
from climate.core.provisioning.preparation import PreparationState as Prep
from climate.core.provisioning.shutdown import ShutdownState as Power


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        (HostFacts(reservable=True), HostState.READY),
        (HostFacts(reservable=False), HostState.FAILING),
        (HostFacts(reservable=False, is_quarantined=True), HostState.SET_ASIDE),
        (HostFacts(reservable=False, preparation=Prep.WANTED), HostState.FAILING),
        (HostFacts(reservable=True, preparation=Prep.WANTED, up=False), HostState.PREPARING),
        (
            HostFacts(reservable=True, preparation=Prep.ACCEPTED, shutdown=Power.OFF),
            HostState.PREPARING,
        ),
        (HostFacts(reservable=True, preparation=Prep.READY, up=False), HostState.READY),
        (HostFacts(reservable=True, preparation=Prep.FAILED), HostState.FAILING),
        (HostFacts(reservable=True, up=True), HostState.READY),
        (HostFacts(reservable=True, up=False), HostState.OFF),
        (HostFacts(reservable=True, shutdown=Power.WANTED, up=True), HostState.READY),
        (HostFacts(reservable=True, shutdown=Power.ACCEPTED, up=True), HostState.OFF),
        (HostFacts(reservable=True, shutdown=Power.OFF, up=True), HostState.OFF),
        (HostFacts(reservable=True, shutdown=Power.WAKING, up=False), HostState.PREPARING),
        (HostFacts(reservable=True, shutdown=Power.KEPT, up=True), HostState.READY),
    ],
)
def test_the_state_follows_from_the_facts(facts: HostFacts, state: HostState) -> None:
    assert host_state(facts) is state
