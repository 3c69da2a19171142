"""Many rows at once, as every database stores and changes them."""

from typing import Any

import pytest
import sqlalchemy as sa

from climate.db.engine import Database
from climate.db.outbox import write
from climate.db.outbox_tables import OutboxRow
from climate.db.rows import update
from tests.conftest import NOON


@pytest.mark.parametrize("text", ["plain", "quote ' and \" and \\", "ä € 𝄞", "a \0 in it"])
def test_rows_are_changed_each_to_what_is_its_own(database: Database, text: str) -> None:
    told: list[dict[str, Any]] = [{"project_id": "p", "n": n} for n in range(3)]
    for payload in told:
        database.write(lambda session, payload=payload: write(session, "some.kind", payload, NOON))
    query = sa.select(OutboxRow.id, OutboxRow.payload, OutboxRow.published_at)
    with database.read() as session:
        first, second, third = session.execute(query.order_by(OutboxRow.id)).all()
    changed = [
        {"id": first.id, "payload": {"text": text}, "published_at": NOON},
        {"id": third.id, "payload": {"n": [text, None]}, "published_at": None},
    ]
    database.write(lambda session: update(session, OutboxRow, changed))
    with database.read() as session:
        assert session.execute(query.order_by(OutboxRow.id)).all() == [
            (first.id, {"text": text}, NOON),
            second,
            (third.id, {"n": [text, None]}, None),
        ]


def test_nothing_is_asked_of_the_database_if_there_is_nothing_to_change(database: Database) -> None:
    database.write(lambda session: update(session, OutboxRow, []))


@pytest.mark.parametrize("number", [2**70, -(2**70), 0.1, 1.7e308])
def test_numbers_are_read_as_they_were_stored(database: Database, number: float) -> None:
    told = {"project_id": "p", "number": number}
    database.write(lambda session: write(session, "some.kind", told, NOON))
    with database.read() as session:
        found = session.execute(sa.select(OutboxRow.payload)).scalar_one()
    assert found == told
    assert type(found["number"]) is type(number)
