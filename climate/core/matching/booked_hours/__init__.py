"""Which resources are booked when, in memory, so that searches of all resources need no SQL.

``booked_hours`` has the public class; the other modules are its parts: ``touched_hours`` says which
resources have bookings in an hour, ``bookings`` has the exact times, ``properties`` evaluates
queries, and ``openings`` and ``free_counts`` search and count free resources.
"""
