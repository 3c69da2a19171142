"""The event engine: claim due events, run them, and store their outcome.

``waiting_list`` reads the due events from the database. ``fair_share`` chooses among them, and
defines ``Batch``: the claims that one worker runs. ``dispatcher`` claims the chosen events and
starts workers. A worker calls ``runner``, which processes a batch in three steps. ``begin`` locks
the leases and decides on each event. ``plugin_calls`` acts on the cloud with no transaction open.
``outcomes`` computes the lease after a success, or stores a failure and the time of the next retry.
"""
