"""The program climate-provisioner: powers hosts on before a lease, and shuts down idle hosts.

It is a client of the HTTP API and imports nothing else of climate. ``agent`` is its main loop.
``claim`` holds the claim on a preparation or shutdown; ``prepare`` and ``shut_down`` carry it out.
``checks`` finds out whether a host is usable. ``nodes`` reads the file with the provisioner's
machines. ``groups`` limits how many machines power on at once. ``client`` calls the API. ``power``
has the drivers.
"""
