"""The event engine: claim due events, run them, and store their outcome.

``queue`` reads the due events from the database and chooses among them. ``dispatcher`` claims the
chosen events, so that only this manager runs them, and starts worker threads. A worker calls
``runner``, which processes an event in three steps. First, ``begin`` locks the lease and decides
what to do. Then ``runner`` calls plug-ins with no transaction open. Last, ``outcomes`` stores the
changed lease, or the failure and the time of the next attempt.
"""
