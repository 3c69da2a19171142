"""The event engine: claim due events, run them, and store their outcome.

``dispatcher`` claims events from the ``waiting_list`` as ``fair_share`` allows and gives them to
workers in a ``batch``. ``runner`` processes one: ``begin`` decides under the lock of the lease,
``plugin_calls`` acts on the cloud with no transaction open, ``outcomes`` stores the result or the
time of the next retry.
"""
