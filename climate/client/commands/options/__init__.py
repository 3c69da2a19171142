"""Reads arguments: how to reach the service, times, and reservations."""
