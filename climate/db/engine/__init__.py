"""Database infrastructure: connections, transactions, retries, column types, schema version.

The definitions of the tables build on this package.
"""
