"""The event engine: claim due events, run them, and store their outcome.

``waiting_list`` is a view of the due events. ``fair_share`` chooses among them, and has the Batch
that one worker runs. ``dispatcher`` claims these events and starts workers. ``runner`` processes
one event: ``begin`` decides under the lock of the lease, ``plugin_calls`` acts on the cloud with no
transaction open, ``outcomes`` stores the result or the time of the next retry.
"""
