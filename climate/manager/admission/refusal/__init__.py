"""Refusals: why climate rejects a lease, and which similar leases it would accept.

- ``refusal``: the error for the API, with reasons and alternatives.
- ``bookings``: where the reasons come from: SQL queries, or the calendar in memory.
"""
