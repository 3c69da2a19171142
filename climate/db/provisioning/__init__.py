"""Statements on the preparations, shutdowns and readiness of hosts."""
