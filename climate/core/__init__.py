"""Pure rules: no input or output, no clock, only the standard library.

``lease`` has the model and its state machines, ``matching`` decides which resource serves which
reservation, ``provisioning`` when hosts are switched on and off, ``notifications`` how a failed
webhook delivery continues. ``errors`` lists all errors for callers, ``settings`` has the operator's
settings, ``limits`` the rules of limits, and ``window`` is a half-open span of time.
"""
