"""Run one benchmark, or all with their defaults: ``python -m benchmarks [NAME [OPTION ...]]``."""

import sys

from benchmarks import admission, lateness, month, occupancy, readiness

ALL = {"lateness": lateness.main, "admission": admission.main}
NAMED = {**ALL, "month": month.main, "readiness": readiness.main, "calendar": occupancy.main}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        NAMED[sys.argv.pop(1)]()
    else:
        for main in ALL.values():
            main()
