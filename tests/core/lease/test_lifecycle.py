"""The tables below are written by hand from Blazar's v1 contract, not derived from the code.

Ours are the steps of a start that failed: from ERROR to active, when it succeeds at last, and its
event's from UNDONE to ERROR.
"""

from enum import StrEnum

import pytest

from climate.core.errors import InvalidTransition
from climate.core.lifecycle import (
    EVENT,
    LEASE,
    OPEN_EVENT,
    RESERVATION,
    STABLE_LEASE,
    EventStatus,
    LeaseStatus,
    ReservationStatus,
    step,
)

LEASES = {
    "CREATING": {"PENDING", "DELETING"},
    "PENDING": {"STARTING", "UPDATING", "DELETING"},
    "STARTING": {"ACTIVE", "ERROR", "DELETING"},
    "ACTIVE": {"TERMINATING", "UPDATING", "DELETING"},
    "UPDATING": {"PENDING", "ACTIVE", "TERMINATED", "ERROR", "DELETING"},
    "TERMINATING": {"TERMINATED", "ERROR", "DELETING"},
    "TERMINATED": {"UPDATING", "DELETING"},
    "DELETING": {"ERROR"},
    "ERROR": {"ACTIVE", "TERMINATING", "UPDATING", "DELETING"},
}
RESERVATIONS = {
    "pending": {"active", "deleted", "error"},
    "active": {"deleted", "error"},
    "error": {"active", "deleted"},
    "deleted": set(),
}
EVENTS = {
    # A start that failed is given up, between two tries, when the end begins.
    "UNDONE": {"IN_PROGRESS", "ERROR"},
    "IN_PROGRESS": {"DONE", "ERROR", "UNDONE"},
    # A before-end that fired is armed again when its lease is prolonged.
    "DONE": {"UNDONE"},
    "ERROR": set(),
}
MACHINES = [
    pytest.param(LEASE, LeaseStatus, LEASES, id="lease"),
    pytest.param(RESERVATION, ReservationStatus, RESERVATIONS, id="reservation"),
    pytest.param(EVENT, EventStatus, EVENTS, id="event"),
]
Machine = dict[StrEnum, frozenset[StrEnum]]
Table = dict[str, set[str]]


@pytest.mark.parametrize(("machine", "statuses", "table"), MACHINES)
def test_statuses_are_those_of_the_contract_as_clients_spell_them(
    machine: Machine, statuses: type[StrEnum], table: Table
) -> None:
    assert {status.value for status in statuses} == set(table)


@pytest.mark.parametrize(("machine", "statuses", "table"), MACHINES)
def test_transitions_are_those_of_the_contract(
    machine: Machine, statuses: type[StrEnum], table: Table
) -> None:
    assert {one.value: {to.value for to in machine[one]} for one in machine} == table


@pytest.mark.parametrize(("machine", "statuses", "table"), MACHINES)
def test_a_step_is_possible_exactly_where_the_table_says_so(
    machine: Machine, statuses: type[StrEnum], table: Table
) -> None:
    for present in statuses:
        for wanted in statuses:
            if wanted == present or wanted.value in table[present.value]:
                assert step(machine, present, wanted) is wanted
            else:
                with pytest.raises(InvalidTransition):
                    step(machine, present, wanted)


def test_a_refused_step_says_what_cannot_become_what() -> None:
    with pytest.raises(InvalidTransition, match=r"^ERROR cannot become STARTING$"):
        step(LEASE, LeaseStatus.ERROR, LeaseStatus.STARTING)


def test_a_lease_is_stable_where_nothing_is_being_done_to_it() -> None:
    assert {status.value for status in STABLE_LEASE} == {
        "PENDING",
        "ACTIVE",
        "TERMINATED",
        "ERROR",
    }


def test_an_event_is_open_until_it_is_done_or_given_up() -> None:
    assert {status.value for status in OPEN_EVENT} == {"UNDONE", "IN_PROGRESS"}
