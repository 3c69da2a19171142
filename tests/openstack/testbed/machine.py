"""What power is to a machine: ``python -m tests.openstack.testbed.machine HOST 1|0``.

With power (1) its compute service runs; without, nothing does, and nobody told Nova.
"""

import sys

from tests.openstack.testbed import daemons, services

if __name__ == "__main__":
    _, host, power = sys.argv
    daemon = services.compute(host)
    if power == "1":
        daemon.start()
    else:
        daemons.kill(daemon.name)
