"""A requirement and its parts."""

from climate.core.matching.query import Compare, Everything, Not, Operand
from climate.core.matching.requirement import Requirement

RED = Compare("==", "colour", Operand("red"))


def test_a_simple_requirement_is_its_only_part() -> None:
    alone = Requirement("lab:bench", 1, 2, Everything())
    assert alone.parts == (alone,)


def test_units_are_counted_by_size_because_the_configuration_counts_devices() -> None:
    unit = {"VCPU": 2, "CUSTOM_GPU": 2}  # one device when the units were booked
    assert Requirement("lab:bench", 1, 2, RED, unit).units({"VCPU": 4, "CUSTOM_GPU": 2}) == 2
    assert Requirement("lab:bench", 1, 2, RED, {"CUSTOM_GPU": 2}).units({"CUSTOM_GPU": 4}) == 2


def test_the_parts_of_a_requirement_are_independent() -> None:
    red, rest = Requirement("lab:bench", 1, 1, RED), Requirement("lab:bench", 2, 3, Not(RED))
    both = Requirement("lab:bench", 1, 1, RED, besides=rest)
    assert both.parts == (red, rest)
    assert all(part.parts == (part,) for part in both.parts)
