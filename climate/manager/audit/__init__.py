"""Self-checks: the cloud against the leases, the invariants, and the backlog."""
