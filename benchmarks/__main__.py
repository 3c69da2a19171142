"""Run one benchmark, or all as they are: ``python -m benchmarks [NAME [OPTION ...]]``."""

import sys

from benchmarks import admission, lateness

ALL = {"lateness": lateness.main, "admission": admission.main}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        ALL[sys.argv.pop(1)]()
    else:
        for main in ALL.values():
            main()
