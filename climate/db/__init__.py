"""The database: tables, migrations and statements, with a folder per kind of object.

Functions receive a session and never commit; the manager opens transactions with
``Database.write``. ``wakeup`` sends hints between processes.
"""
