"""Pure rules: no input or output, no clock, only the standard library.

``lease`` has the model of leases and its state machines. ``matching`` decides which resource serves
which reservation. ``provisioning`` decides when hosts are switched on and off. ``notifications``
decides what follows from a failed webhook delivery. ``errors`` has all errors that clients can get,
``settings`` the operator's settings, ``limits`` the rules of limits. A ``window`` is a half-open
span of time.
"""
