"""Use cases: what ``climate-api`` does for requests, and ``climate-manager`` for due events.

A use case opens its transaction itself. It makes no network call while a transaction is open. The
module ``claims`` ensures that only one manager at a time runs an event. ``enforcement`` is the
client of the operator's enforcement service.
"""
