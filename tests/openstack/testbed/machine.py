"""The power switch of a machine: ``python -m tests.openstack.testbed.machine HOST 1|0``."""

import sys

from tests.openstack.testbed import daemons, services

if __name__ == "__main__":
    _, host, power = sys.argv
    daemon = services.compute(host)
    if power == "1":
        daemon.start()
    else:
        daemons.kill(daemon.name)
