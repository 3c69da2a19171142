"""Use cases, and what time and the cloud bring. ``climate-api`` and ``climate-manager`` share it.

A use case opens its transaction itself. No network call is made while a transaction is open.
``claims`` keeps managers apart; ``enforcement`` is the client of an enforcement service.
"""
