"""Write results of a comparison as Markdown: ``python -m benchmarks.comparison.table FILE ...``.

Each file has the lines of one or more runs of ``benchmarks.comparison``. Each setup, that is a
database, its delay and its calendar, has a table of its own.
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

Result = Mapping[str, Any]
_SETUP = ("date", "database", "delay_ms", "hosts", "bookings", "rounds", "this", "previous")
# Heading, the key of the result or of its sides, and the figure.
_COLUMNS = (
    ("p50, ms", "this", "p50_ms"),
    ("a second", "this", "per_second"),
    ("CPU of climate, ms", "this", "cpu_ms"),
    ("CPU of the database, ms", "this", "database_cpu_ms"),
    ("repeated, %", "this", "retries_pct"),
    ("p50 to previous", "ratio_to_previous", "p50_ms"),
    ("rate to previous", "ratio_to_previous", "per_second"),
    ("CPU to previous", "ratio_to_previous", "cpu_ms"),
    ("rate to floor", "ratio_to_floor", "per_second"),
)


def tables(results: Iterable[Result]) -> str:
    """Return the Markdown of all results; results of the same setup that follow share a table."""
    parts = [
        "\n".join([_title(setup), "", *_table(list(of_setup))])
        for setup, of_setup in groupby(results, lambda result: [result[key] for key in _SETUP])
    ]
    return "\n\n".join(parts) + "\n"


def _title(setup: Sequence[Any]) -> str:
    date, database, delay, hosts, bookings, rounds, this, previous = setup
    remote = f", {delay:g} ms away each way" if delay else ""
    against = f" against `{previous}`" if previous else ""
    return (
        f"{date}: {database}{remote}, {hosts:,} hosts, {bookings:,} bookings,\n"
        f"`{this}`{against}, median of {rounds} rounds (quartiles):"
    )


def _table(results: Sequence[Result]) -> Iterator[str]:
    headings = ["Case", "Clients", *(heading for heading, _, _ in _COLUMNS)]
    yield _line(headings)
    yield "|" + "---|" * len(headings)
    for result in results:
        clients = result["clients"] or ""
        cells = [_cell(result, *column[1:]) for column in _COLUMNS]
        yield _line([f"`{result['case']}`", str(clients), *cells])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(result: Result, key: str, figure: str) -> str:
    """Return a median and its quartiles, "" if the case does not have the figure."""
    figures = result["sides"].get(key) or result.get(key) or {}
    found = figures.get(figure)
    if found is None:
        return ""
    return f"{found['median']:.3g} ({found['lower']:.3g}-{found['upper']:.3g})"


def main() -> None:
    """Print the tables of the files of the command line."""
    parser = argparse.ArgumentParser("benchmarks.comparison.table", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    lines = [line for path in parser.parse_args().files for line in path.read_text().splitlines()]
    print(tables(json.loads(line) for line in lines), end="")


if __name__ == "__main__":
    main()
