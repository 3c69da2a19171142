"""Run one benchmark, or all with their defaults: ``python -m benchmarks [NAME [OPTION ...]]``."""

import sys

from benchmarks import month, readiness, wait_list
from benchmarks.admission import __main__ as admission
from benchmarks.calendar import __main__ as calendar
from benchmarks.comparison import __main__ as comparison
from benchmarks.lateness import __main__ as lateness

ALL = {"lateness": lateness.main, "admission": admission.main}


def console() -> None:
    """Run the only benchmark that needs the packages of the extra browser."""
    try:
        from benchmarks.calendar.console import main as measure  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise SystemExit(f"not measured: {error} (make install-dev installs it)") from None
    measure()


NAMED = {
    **ALL,
    "comparison": comparison.main,
    "month": month.main,
    "readiness": readiness.main,
    "calendar": calendar.main,
    "console": console,
    "wait_list": wait_list.main,
}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        NAMED[sys.argv.pop(1)]()
    else:
        for main in ALL.values():
            main()
