"""Statements on preparations, shutdowns and the readiness of hosts."""
