"""The climate-provisioner program: power on hosts before a lease, and shut down idle ones.

It is a client of the HTTP API and imports nothing else of climate. ``agent`` is its main loop,
``claim`` holds a preparation or shutdown, ``prepare`` and ``shut_down`` do the work, ``checks``
tell whether a host is ready, ``nodes`` reads which machines it is responsible for, ``groups``
limits how many start at once, ``client`` calls the API, and ``power`` has the drivers.
"""
