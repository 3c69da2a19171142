"""Preparations, shutdowns and readiness of hosts in the v2 API."""
