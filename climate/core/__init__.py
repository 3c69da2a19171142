"""Pure rules: no input or output, no clock, only the standard library.

The packages and modules are: ``lease``, the model of leases and its state machines; ``matching``,
which resource serves which reservation; ``provisioning``, when hosts are switched on and off;
``notifications``, the rules of webhooks and calendar feeds; ``errors``, all errors that clients can
get; ``settings``, the operator's settings; ``limits``, the rules of limits; ``window``, a half-open
span of time.
"""
