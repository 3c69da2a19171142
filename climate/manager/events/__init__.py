"""The event engine: claim due events, run them, and store their outcome.

``queue`` reads the due events from the database and chooses among them. ``dispatcher`` claims the
chosen events and starts workers. A worker calls ``runner``: ``begin`` locks the leases and decides
on each event, ``runner`` calls plug-ins with no transaction open, and ``outcomes`` stores the lease
after a success, or a failure and the time of the next retry.
"""
