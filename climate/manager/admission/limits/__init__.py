"""Limits: how much projects and users may reserve, for example "at most 10 hosts".

- ``limits``: the gates that enforce the limits, and what a project or user has left.
- ``lease_use``: the leases that count towards a limit.
"""
