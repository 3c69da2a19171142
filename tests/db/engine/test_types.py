"""JSON is written and read like Python's own library does."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from climate.db.engine import types as engine_types
from tests.support.cases import each_case


class Word(str):
    """A subclass of str, like translated texts."""

    __slots__ = ()


@each_case(
    "value",
    [
        {"a": [1, None, True, 1.5, 'ä € 𝄞 " \\ \0']},
        {"n": [2**70, -(2**70), 2**63, 0.1, 1.7e308, -0.0]},
        {Word("key"): Word("text")},
        {1: "a", "b": (1, 2)},
        "\ud800",
    ],
)
def test_writes_and_reads_values_like_pythons_json(value: Any) -> None:
    result = engine_types.decode_json(engine_types.encode_json(value))
    assert repr(result) == repr(json.loads(json.dumps(value)))


@each_case("text", ["1e400", "NaN", '"\\ud800"', "[NaN, 1]", b' {"a": 1} '])
def test_reads_json_that_python_wrote(text: str | bytes) -> None:
    assert repr(engine_types.decode_json(text)) == repr(json.loads(text))


def test_writes_a_time_with_its_zone() -> None:
    moment = datetime(999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    assert (
        datetime.fromisoformat(engine_types.decode_json(engine_types.encode_json(moment))) == moment
    )
    payload = {Word("at"): Word("a"), "moment": moment}
    assert (
        datetime.fromisoformat(
            engine_types.decode_json(engine_types.encode_json(payload))["moment"]
        )
        == moment
    )


def test_rejects_a_value_that_is_no_json() -> None:
    with pytest.raises(TypeError):
        engine_types.encode_json({"a": object()})
