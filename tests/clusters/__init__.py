"""Databases that span machines: three Galera nodes, and PostgreSQL with a synchronous standby.

``testbed`` starts and stops the servers. The tests stop, freeze and cut off servers while one API
process and one manager per node answer requests and start leases.
"""
