"""Audits: drift between leases and the cloud, invariants in the database, backlog metrics."""
