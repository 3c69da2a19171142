"""Statements on leases, their reservations and idempotency keys."""
