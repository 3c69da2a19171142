"""State machines of leases and reservations.

The tables are written by hand from Blazar's v1 contract, not derived from the code. Climate adds
the transition of a failed start: ERROR to ACTIVE when a retry succeeds.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import pytest

from climate.core.errors import InvalidTransition
from climate.core.lease.lifecycle import (
    LEASE,
    OPEN_EVENT,
    RESERVATION,
    STABLE_LEASE,
    LeaseStatus,
    ReservationStatus,
    step,
)
from tests.support.cases import each_case

LEASES = {
    "CREATING": {"PENDING", "DELETING"},
    "WAITING": {"PENDING", "DELETING"},
    "PENDING": {"WAITING", "STARTING", "UPDATING", "DELETING"},
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
MACHINES = [(LEASE, LeaseStatus, LEASES), (RESERVATION, ReservationStatus, RESERVATIONS)]
Machine = dict[Any, frozenset[Any]]
Table = dict[str, set[str]]


@each_case("machine, statuses, table", MACHINES)
def test_statuses_and_transitions_are_those_of_the_v1_contract_and_the_wait_list(
    machine: Machine, statuses: type[StrEnum], table: Table
) -> None:
    assert {status.value for status in statuses} == set(table)
    transitions = {status.value: {to.value for to in machine[status]} for status in machine}
    assert transitions == table


@each_case("machine, statuses, table", MACHINES)
def test_allows_exactly_the_transitions_of_the_table(
    machine: Machine, statuses: Iterable[Any], table: Table
) -> None:
    for present in statuses:
        for wanted in statuses:
            if wanted == present or wanted.value in table[present.value]:
                assert step(machine, present, wanted) is wanted
            else:
                with pytest.raises(InvalidTransition):
                    step(machine, present, wanted)


def test_an_invalid_transition_names_both_statuses() -> None:
    with pytest.raises(InvalidTransition, match=r"^ERROR cannot become STARTING$"):
        step(LEASE, LeaseStatus.ERROR, LeaseStatus.STARTING)


def test_a_lease_is_stable_when_no_operation_is_running() -> None:
    assert {status.value for status in STABLE_LEASE} == {
        "PENDING",
        "ACTIVE",
        "TERMINATED",
        "ERROR",
    }


def test_an_event_is_open_until_it_is_done_or_abandoned() -> None:
    assert {status.value for status in OPEN_EVENT} == {"UNDONE", "IN_PROGRESS"}
