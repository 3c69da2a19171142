"""The program climate-provisioner: powers hosts on before a lease, and shuts down idle hosts.

The program is a client of climate's HTTP API, and imports no other package of climate. ``agent`` is
its main loop. ``claim`` reserves a task (a preparation or shutdown) for this process; ``prepare``
and ``shut_down`` carry the task out. ``checks`` tests whether a host is usable. ``nodes`` reads the
operator's file with the hosts (nodes). ``groups`` limits how many hosts power on at once.
``client`` calls the API. ``power`` contains the drivers for power controllers.
"""
