"""Run all benchmarks: ``python -m benchmarks`` or ``make bench``."""

from benchmarks import lateness

if __name__ == "__main__":
    lateness.main()
