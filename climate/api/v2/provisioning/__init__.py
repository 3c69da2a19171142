"""Preparations, shutdowns and readiness of hosts in the v2 API.

A preparation is a task to make a host ready for a lease. A shutdown is a task to switch an idle
host off. Provisioners do these tasks. Readiness is whether hosts are prepared for their leases.
"""
