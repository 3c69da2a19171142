"""Provisioning: prepare hosts before their leases start, and switch off hosts that are idle.

climate only stores these tasks. Programs called provisioners claim and carry out the tasks. A
preparation is the task to make a host ready for a lease. A shutdown is the task to switch a host
off.
"""
