"""The comparison of releases: figures of rounds, their table, and the source of a release."""

import subprocess
import sys
from typing import Any

import pytest

from benchmarks.comparison.rounds import orders, ratios, spread, summary
from benchmarks.comparison.table import tables
from benchmarks.comparison.trees import checked_out

# The machine is half as fast in the second round, so both sides are.
ROUNDS = [
    {"this": {"p50_ms": 2.0, "retries_pct": 0.0}, "floor": {"p50_ms": 1.0}},
    {"this": {"p50_ms": 4.0, "retries_pct": 1.0}, "floor": {"p50_ms": 2.0}},
]


def result(**values: Any) -> dict[str, Any]:
    """Return a line of the comparison."""
    about = {"date": "2026-11-25", "database": "PostgreSQL 15.1", "delay_ms": 0.0, "hosts": 1000}
    run = {"bookings": 100_000, "rounds": 2, "this": "abc", "previous": None}
    figures = {"sides": summary(ROUNDS), "ratio_to_floor": ratios(ROUNDS, "this", "floor")}
    return {**about, **run, "case": "spread", "clients": 1, **figures, **values}


def test_a_spread_has_median_quartiles_and_extremes() -> None:
    found = spread([5.0, 1.0, 2.0, 4.0, 3.0])

    figures = (found.median, found.lower, found.upper, found.lowest, found.highest)
    assert figures == (3.0, 2.0, 4.0, 1.0, 5.0)


def test_the_spread_of_one_round_is_its_value() -> None:
    assert set(summary(ROUNDS[:1])["floor"]["p50_ms"].values()) == {1.0}


def test_a_ratio_divides_figures_of_the_same_round() -> None:
    [(name, found)] = ratios(ROUNDS, "this", "floor").items()

    assert name == "p50_ms"
    assert set(found.values()) == {2.0}


def test_a_figure_that_a_side_lacks_has_no_ratio() -> None:
    rounds: list[dict[str, dict[str, float | None]]] = [
        {"this": {"p50_ms": 2.0}, "floor": {"p50_ms": None}}
    ]

    assert ratios(rounds, "this", "floor") == {}


def test_each_round_has_all_sides_in_an_order_that_the_seed_decides() -> None:
    sides = ["this", "previous", "floor"]
    found = orders(sides, 20, seed=1)

    assert all(sorted(order) == sorted(sides) for order in found)
    assert len({tuple(order) for order in found}) > 1
    assert found == orders(sides, 20, seed=1)


def test_a_table_has_a_row_for_each_case() -> None:
    text = tables([result(), result(case="idle", clients=None)])

    title, _, rows = text.partition("\n\n")
    assert title.startswith("2026-11-25: PostgreSQL 15.1, 1,000 hosts, 100,000 bookings")
    assert [row.split("|")[1:4] for row in rows.splitlines()[2:]] == [
        [" `spread` ", " 1 ", " 3 (2.5-3.5) "],
        [" `idle` ", "  ", " 3 (2.5-3.5) "],
    ]


def test_each_setup_has_its_own_table() -> None:
    text = tables([result(), result(delay_ms=1.0)])

    assert text.count("| Case |") == 2
    assert "PostgreSQL 15.1, 1 ms away each way," in text


def test_the_source_of_a_release_has_its_entry_points_and_the_benchmarks_of_now() -> None:
    show = (
        "from importlib.metadata import entry_points\n"
        "from importlib.util import find_spec\n"
        "print(find_spec('climate').origin)\n"
        "print(find_spec('benchmarks.comparison.worker').origin)\n"
        "[point] = entry_points(group='console_scripts', name='climate-manager')\n"
        "print(point.value)"
    )
    with checked_out("HEAD") as tree:
        command = [sys.executable, "-c", show]
        shown = subprocess.run(
            command, cwd=tree, check=True, capture_output=True, text=True
        ).stdout.split()

    assert shown == [
        str(tree / "climate/__init__.py"),
        str(tree / "benchmarks/comparison/worker.py"),
        "climate.cmd.main:manager",
    ]


def test_an_unknown_reference_ends_the_program() -> None:
    with (
        pytest.raises(SystemExit, match="--against no-such-release"),
        checked_out("no-such-release"),
    ):
        pass
