"""Pure rules: no input or output, no clock, only the standard library.

``lease`` has the model and its state machines, ``matching`` decides which resource serves which
reservation, ``provisioning`` when hosts are switched on and off, ``notifications`` what a webhook
delivery does next. ``errors`` lists every refusal; ``settings`` and ``limits`` what an operator
decides; ``window`` is a half-open span of time.
"""
