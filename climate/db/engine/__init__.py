"""Connections, transactions, retries, column types and the schema version."""
