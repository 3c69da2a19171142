"""New ids are UUIDs that are in the order in which they were made."""

import time
import uuid

from climate import ids


def test_an_id_is_a_uuid_of_version_7() -> None:
    made = uuid.UUID(ids.new_id())
    assert (made.version, made.variant) == (7, uuid.RFC_4122)


def test_an_id_begins_with_the_millisecond_in_which_it_was_made() -> None:
    before = time.time_ns() // 1_000_000
    made = uuid.UUID(ids.new_id()).int >> 80
    assert before <= made <= time.time_ns() // 1_000_000


def test_ids_are_in_the_order_in_which_they_were_made() -> None:
    made = []
    for _ in range(50):
        made.append(ids.new_id())
        until = time.time_ns() + 1_000  # what is closer together than 244 ns may be in any order
        while time.time_ns() < until:
            pass
    assert made == sorted(made)


def test_no_two_ids_are_the_same() -> None:
    assert len({ids.new_id() for _ in range(10_000)}) == 10_000
