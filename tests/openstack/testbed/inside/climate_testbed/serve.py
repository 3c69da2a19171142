"""Serve an OpenStack API: ``python -m climate_testbed.serve NAME MODULE PORT [ARGUMENT...]``.

One process with threads; the arguments are what the service itself reads from its command line.
"""

import importlib
import sys

import waitress

_THREADS = 8


def main() -> None:
    """Serve ``MODULE.application`` on the loopback."""
    name, module, port, *arguments = sys.argv[1:]
    sys.argv = [name, *arguments]
    application = importlib.import_module(module).application
    if "sqlalchemy.orm" in sys.modules:
        # Left to the first request, this races with the second, and Neutron answers 500.
        sys.modules["sqlalchemy.orm"].configure_mappers()
    waitress.serve(application, host="127.0.0.1", port=int(port), ident=name, threads=_THREADS)


if __name__ == "__main__":
    main()
