"""Preparing hosts before leases start, and switching off those that nobody needs."""
