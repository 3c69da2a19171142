"""Results of the cells of the matrix: stored in files, and made into docs/evidence/faults.md.

``python -m tests.faults.results`` writes the page from the files, whichever runs made them. It
keeps the section on clusters, which is written by hand.
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.faults.cell import LEASES, MANAGERS
from tests.faults.evidence import Outcome
from tests.faults.injection import FAULTS, Fault
from tests.faults.stage import Moment

FOLDER = Path(os.environ.get("CLIMATE_TEST_FAULT_RESULTS", ".faults")).absolute()
PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "faults.md"
DATABASES = {"postgresql": "PostgreSQL", "mariadb": "MariaDB", "sqlite": "SQLite"}

_LONGEST_REASON, _LONGEST_LINE = 2000, 200

Cells = dict[tuple[str, str, str], dict[str, Any]]


@dataclass
class Note:
    """How many calls were held when the fault came, and the outcome.

    ``gap`` are the seconds between two moments of the leases, if nothing disturbs them.
    """

    held: int = 0
    gap: float = 0.0
    outcome: Outcome | None = None


@contextmanager
def noted(backend: str, fault: str, moment: str) -> Iterator[Note]:
    """Write the result of a cell, passed or failed."""
    note, began = Note(), time.monotonic()
    try:
        yield note
    except (KeyboardInterrupt, pytest.skip.Exception):  # nothing was found
        raise
    except BaseException as error:
        _write((backend, fault, moment), note, began, f"{type(error).__name__}: {error}")
        raise
    _write((backend, fault, moment), note, began, None)


def _write(cell: Sequence[str], note: Note, began: float, why: str | None) -> None:
    found = {
        "cell": cell,
        "leases": LEASES,
        "held": note.held,
        "gap": round(note.gap, 1),
        "passed": why is None,
        "why": why and why[:_LONGEST_REASON],
        "seconds": round(time.monotonic() - began),
        "date": datetime.now(UTC).date().isoformat(),
        **(asdict(note.outcome) if note.outcome else {}),
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{'-'.join(cell)}.json").write_text(json.dumps(found))


def page(cells: Cells, clusters: str) -> str:
    parts = [_HEAD.format(managers=MANAGERS, when=_when(list(cells.values())))]
    for backend, name in DATABASES.items():
        faults = [fault for fault in FAULTS if backend in fault.databases]
        parts.append(f"## {name}\n\n{_table(cells, backend, faults)}\n")
    if failed := [f"- `{'-'.join(key)}`: {_why(one)}" for key, one in cells.items() if one["why"]]:
        parts.append("## What failed\n\n" + "\n".join(failed) + "\n")
    rows = "\n".join(f"| `{fault.name}` | {' '.join(_what(fault).split())} |" for fault in FAULTS)
    parts += [clusters, _FOOT.format(faults=rows)]
    return "\n".join(parts)


def _clusters(old: str) -> str:
    """Return the section on clusters of the page as it is."""
    begin = old.index(_CLUSTERS)
    return old[begin : old.index("\n## ", begin)]


def _when(found: Sequence[dict[str, Any]]) -> str:
    if not found:
        return "Nothing was run yet."
    passed = sum(item["passed"] for item in found)
    leases = sorted({item["leases"] for item in found})
    days = sorted({item["date"] for item in found})
    many = " to ".join(map(str, dict.fromkeys((leases[0], leases[-1]))))
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    return f"{passed} of {len(found)} passed, with {many} leases each, on {when}."


def _table(cells: Cells, backend: str, faults: Sequence[Fault]) -> str:
    lines = ["| | " + " | ".join(Moment) + " |", "|---" * (len(Moment) + 1) + "|"]
    for fault in faults:
        texts = [_text(cells.get((backend, fault.name, moment))) for moment in Moment]
        lines.append(f"| `{fault.name}` | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _text(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "not run"
    if not cell["passed"]:
        return "**failed**"
    counts = ("held", "tried_again", "told_again", "too_late")
    return "ok " + "/".join(str(cell[name]) for name in counts)


def _why(cell: dict[str, Any]) -> str:
    """Return the first line of the error, as code."""
    return f"`{cell['why'].splitlines()[0][:_LONGEST_LINE].replace('`', chr(39))}`"


def _what(fault: Fault) -> str:
    return fault.inject.__doc__ or ""


_CLUSTERS = "## Servers of a database cluster\n"

_HEAD = """\
# Faults

Written by `python -m tests.faults.results` from the results of `make test-faults`.
{when}

Each cell is a run of its own: {managers} managers, a database server and a broker that nothing else
uses, a simulated cloud, and leases that all have their reminder, start, before-end and end at the
same time. The fault comes while managers are held in the moment that the column names, at the steps
listed below.

A cell is ok if every acknowledged lease is over and there is no other; each effect on the cloud
happened once, in order and not early; nothing is left in the cloud; every notification arrived at
least once, those of a lease in order; and the [invariants](../../ARCHITECTURE.md#five-invariants)
hold.

The numbers are `held / retried / repeated / too late`: calls in progress when the fault came;
attempts at an event after its first, which did only what was missing; messages that came more than
once, with the same id; reminders and before-ends that no manager could handle in time. They
differ from run to run.
"""

_FOOT = """\
## When these tests run

CI runs the short matrix with each change (`make test-faults-short`): each fault at one moment, 11
cells, 12 leases. `make test-nightly` runs the other cells with 200 leases. `make test-faults` runs
every cell with 200 leases ([CONTRIBUTING.md](../../CONTRIBUTING.md#faults)).

## Faults and moments

| Fault | |
|---|---|
{faults}

| Moment | Where managers are held: each lease at one of |
|---|---|
| `heads-up` | in the transaction: before the notification is written, after it |
| `start` | before the pool is created, before the host is in it, after it |
| `before-end` | before an image is created, after it |
| `end` | before the host leaves the pool, before the pool is deleted, after it |
| `relay` | before a start is published, after it and before it is recorded |

A paused manager is held before the first step, where a fence can still help. A broker fails before
the message is sent.

Reminders and the relay make no call to the cloud. There, `slow-plugin` and `failing-plugin` affect
other leases, which start meanwhile.

Not tested: two faults at once; a network that drops packets silently; a full disk below PostgreSQL,
MariaDB or RabbitMQ; machines that lose power. `make test-openstack` tests a real cloud that fails
([CONTRIBUTING.md](../../CONTRIBUTING.md#a-real-openstack)).
"""


def main() -> None:
    found = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]
    cells: Cells = {(item["cell"][0], item["cell"][1], item["cell"][2]): item for item in found}
    PAGE.write_text(page(cells, _clusters(PAGE.read_text())))


if __name__ == "__main__":
    main()
