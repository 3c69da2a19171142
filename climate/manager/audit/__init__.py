"""Audits: drift between leases and the cloud, invariants in the database, backlog metrics.

Drift is a difference between the state that leases require and the state of the cloud.
"""
