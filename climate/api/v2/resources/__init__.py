"""Reservable resources in the v2 API."""
