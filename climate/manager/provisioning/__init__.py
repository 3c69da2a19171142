"""Provisioning: prepare hosts before their leases start, and switch off hosts that are idle.

climate itself does not power hosts on or off: it stores tasks, and programs called provisioners
claim and carry out these tasks. A preparation is the task to make a host ready for a lease. A
shutdown is the task to switch a host off.
"""
