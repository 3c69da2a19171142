"""Errors of the database contain no values, whichever part of them a log prints."""

import logging
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, IntegrityError

from climate.db.engine.database import Database
from climate.db.tables.leases import ResourceRow
from tests.conftest import NOON

SECRET = "whsec_'of a webhook'"  # quotes, as servers quote values


@pytest.mark.parametrize("other", [{"external_id": SECRET}, {"type": None}], ids=["twice", "null"])
def test_a_failed_statement_logs_no_values(
    database: Database, other: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    row = {"type": "t", "external_id": SECRET, "reservable": True, "created_at": NOON}
    database.write(lambda session: session.execute(sa.insert(ResourceRow).values(row)))
    with pytest.raises(IntegrityError) as raised, database.read() as session:
        session.execute(
            sa.insert(ResourceRow).values({**row, "external_id": SECRET[::-1], **other})
        )
    logging.getLogger(__name__).error("%s", raised.value, exc_info=raised.value)
    assert "INSERT INTO resources" in caplog.text
    assert "whsec" not in caplog.text
    assert SECRET[::-1] not in caplog.text


@pytest.mark.parametrize("statement", ["SELECT uuid :value", "SELECT 1 FROM * :value"])
def test_a_failed_query_logs_no_values(database: Database, statement: str) -> None:
    query = statement.replace(":value", "'whsec'")
    with pytest.raises(DBAPIError) as raised, database.read() as session:
        session.execute(sa.text(query))
    assert "whsec" not in str(raised.value.orig)
