"""Availability, search and limits in the v2 API."""
