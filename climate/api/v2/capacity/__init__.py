"""Availability, the calendar, and the search for windows that fit a request, in the v2 API."""
