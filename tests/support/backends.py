"""Marks for tests of ``database`` that do not run on every database."""

import pytest

#: The statement is the same everywhere, so one database shows its result.
on_sqlite = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
#: SQLite has neither row locks nor concurrent writers.
on_servers = pytest.mark.parametrize("backend", ["postgresql", "mariadb"], indirect=True)
on_postgresql = pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
