"""Provisioning: prepare hosts before leases start, and switch off hosts that no lease needs."""
