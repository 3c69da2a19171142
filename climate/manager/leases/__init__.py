"""Leases: creating, reading, changing and deleting them, and what optional features add."""
