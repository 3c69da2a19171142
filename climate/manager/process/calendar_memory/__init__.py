"""The calendar in memory: a copy of the bookings of hosts, which answers questions about capacity.

- ``memory``: the copy of a process: when it is loaded, brought up to date and compared.
- ``view``: questions to the copy, with times as ``datetime``.

The copy only gives advice and reasons for refusals. Every booking is decided by the database.
"""
