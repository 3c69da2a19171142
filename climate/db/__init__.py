"""The database: tables, migrations and SQL statements, with a folder per kind of object.

Functions receive a session and never commit. The callers in ``climate.manager`` open transactions
with ``Database.write``. The module ``wakeup`` sends hints between processes.
"""
