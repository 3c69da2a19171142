"""The parts below all tables: connections, transactions, retries, column types, schema version."""
