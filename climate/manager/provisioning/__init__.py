"""Provisioning: plan which hosts are prepared, and switch off those that nobody needs."""
