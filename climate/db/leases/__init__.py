"""Statements on leases, their reservations, the history of leases, and idempotency keys."""
