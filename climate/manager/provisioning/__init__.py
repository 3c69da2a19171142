"""Provisioning: prepare hosts before their leases start, and switch off hosts that are idle."""
