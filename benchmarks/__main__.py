"""Run one benchmark, or all with their defaults: ``python -m benchmarks [NAME [OPTION ...]]``."""

import sys

from benchmarks import admission, lateness, month, occupancy, readiness

ALL = {"lateness": lateness.main, "admission": admission.main}


def console() -> None:
    """Run benchmarks.console, the only benchmark that needs the packages of the extra browser."""
    try:
        from benchmarks.console import main as measure  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise SystemExit(f"not measured: {error} (make install-dev installs it)") from None
    measure()


NAMED = {
    **ALL,
    "month": month.main,
    "readiness": readiness.main,
    "calendar": occupancy.main,
    "console": console,
}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        NAMED[sys.argv.pop(1)]()
    else:
        for main in ALL.values():
            main()
