"""Filters and weighers that cannot be used stop the process, and say why."""

import pytest
from oslo_config.cfg import ConfigOpts

from climate.config import Misconfigured
from climate.core.selection import Selection
from climate.plugins import preferences
from climate.plugins.selection_loader import load_selection
from tests.plugins.conftest import Install


def load(
    conf: ConfigOpts, filters: tuple[str, ...] = (), weighers: tuple[str, ...] = ()
) -> Selection:
    conf.set_override("filters", list(filters), group="manager")
    conf.set_override("weighers", list(weighers), group="manager")
    return load_selection(conf)


def refusal(conf: ConfigOpts, **names: tuple[str, ...]) -> str:
    with pytest.raises(Misconfigured) as caught:
        load(conf, **names)
    return str(caught.value)


def test_nothing_is_chosen_unless_it_is_asked_for(conf: ConfigOpts) -> None:
    assert load_selection(conf) == Selection()


def test_they_are_loaded_by_name_in_their_order_with_multipliers(conf: ConfigOpts) -> None:
    found = load(conf, ("no_maintenance",), ("lowest_id = -2.5", "fewest_properties"))
    assert found.filters == (preferences.no_maintenance,)
    assert found.weighers == (
        (preferences.lowest_id, -2.5),
        (preferences.fewest_properties, 1.0),
    )


def test_those_of_another_package_are_found(conf: ConfigOpts, install: Install) -> None:
    source = "def best(candidate, requirement):\n    return 7.0"
    install("choosy", source, "best = choosy:best", "climate.weighers")
    [(weigher, multiplier)] = load(conf, weighers=("best=3",)).weighers
    assert (weigher.__name__, multiplier) == ("best", 3.0)


@pytest.mark.parametrize("option", ["filters", "weighers"])
def test_a_missing_one_is_named(conf: ConfigOpts, option: str) -> None:
    said = refusal(conf, **{option: ("no_such",)})
    assert said == (
        f"[manager] {option}: no_such is offered by no installed package (climate.{option})"
    )


@pytest.mark.parametrize("text", ["lowest_id=", "lowest_id=much", "lowest_id=nan", "lowest_id=inf"])
def test_a_multiplier_is_a_number(conf: ConfigOpts, text: str) -> None:
    assert f"weighers: {text!r} is not of the form NAME=NUMBER" in refusal(conf, weighers=(text,))


def test_none_counts_twice(conf: ConfigOpts) -> None:
    said = refusal(conf, weighers=("lowest_id=1", "lowest_id=2"))
    assert said == "[manager] weighers: lowest_id is named twice"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import no_such_module", "No module named 'no_such_module'"),
        ("", "has no attribute 'f'"),
        ("f = 'text'", "f is no function"),
    ],
)
def test_a_broken_one_is_named_with_its_reason(
    conf: ConfigOpts, install: Install, source: str, reason: str
) -> None:
    install("faulty", source, "f = faulty:f", "climate.filters")
    said = refusal(conf, filters=("f",))
    assert said.startswith("[manager] filters: f")
    assert reason in said


def test_two_packages_that_offer_one_name_are_refused(conf: ConfigOpts, install: Install) -> None:
    install("one", "def f(): ...", "f = one:f", "climate.filters")
    install("two", "def f(): ...", "f = two:f", "climate.filters")
    assert "several packages offer f" in refusal(conf, filters=("f",))
