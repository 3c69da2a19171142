"""Availability, and the search for windows, in the v2 API."""
