"""The database: tables, migrations and statements, in one folder per noun.

Functions receive a session and never commit; the manager opens transactions with
``Database.write``. ``wakeup`` sends hints between processes.
"""
