"""Updates of many rows, and numbers in JSON, as every database stores them."""

from functools import partial
from typing import Any

import sqlalchemy as sa

from climate.core.notifications.event_type import EventType
from climate.db.engine.database import Database
from climate.db.notifications.outbox import write
from climate.db.tables.bulk import update
from climate.db.tables.notifications import OutboxRow
from tests.conftest import NOON

KIND = EventType("some.kind")


def test_each_row_gets_its_own_values(database: Database) -> None:
    query = sa.select(OutboxRow.id, OutboxRow.payload, OutboxRow.published_at)
    payloads: list[dict[str, Any]] = [{"project_id": "p", "n": n} for n in range(3)]
    for payload in payloads:
        database.write(partial(write, event_type=KIND, payload=payload, now=NOON))
    with database.read() as session:
        first, second, third = session.execute(query.order_by(OutboxRow.id)).all()
    for text in ("plain", "quote ' and \" and \\", "ä € 𝄞", "a \0 in it"):
        changed = [
            {"id": first.id, "payload": {"text": text}, "published_at": NOON},
            {"id": third.id, "payload": {"n": [text, None]}, "published_at": None},
        ]
        database.write(partial(update, table=OutboxRow, rows=changed))
        with database.read() as session:
            assert session.execute(query.order_by(OutboxRow.id)).all() == [
                (first.id, {"text": text}, NOON),
                second,
                (third.id, {"n": [text, None]}, None),
            ]


def test_no_rows_need_no_statement(database: Database) -> None:
    database.write(lambda session: update(session, OutboxRow, []))


def test_reads_numbers_as_they_were_stored(database: Database) -> None:
    numbers = [2**70, -(2**70), 0.1, 1.7e308]
    payload = {"project_id": "p", "numbers": numbers}
    database.write(lambda session: write(session, KIND, payload, NOON))
    with database.read() as session:
        stored = session.execute(sa.select(OutboxRow.payload)).scalar_one()
    assert stored == payload
    assert [type(number) for number in stored["numbers"]] == [type(number) for number in numbers]
