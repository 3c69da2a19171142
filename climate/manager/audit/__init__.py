"""Audits: leases against the cloud, invariants of the database, and the backlog as metrics."""
