"""Queries for calendars: which resources are occupied, and how much of them over time.

The database computes the sums. So the number of rows that it returns is limited, however many
bookings there are.
"""
