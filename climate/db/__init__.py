"""The database: tables, migrations and SQL statements, with a folder per kind of object.

Functions receive a session and never commit. Their callers in ``climate.manager`` open transactions
with ``Database.write``. With the module ``wakeup``, a process tells other processes that there is
new work in the database.
"""
