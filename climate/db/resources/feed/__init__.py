"""The booking feed: what a copy of the calendar in memory reads from the database.

``port`` is the interface. Each database has an implementation, because each has its own order of
commits; ``dialects`` chooses it. ``rows`` converts rows for all of them. Database triggers write
the rows that the feed reads (``climate.db.tables.booking_changes``).
"""
