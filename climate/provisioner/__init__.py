"""The climate-provisioner program: power on hosts before a lease, and shut down idle ones.

It is a client of the HTTP API and imports nothing else of climate. ``agent`` is its main loop,
``claim`` holds the claim on a preparation or shutdown, ``prepare`` and ``shut_down`` carry it out.
``checks`` tells whether a host is usable, ``nodes`` reads the file with the provisioner's machines,
``groups`` limits how many power on at once, ``client`` calls the API, ``power`` has the drivers.
"""
