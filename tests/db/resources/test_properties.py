"""Property filters in SQL select the resources that the filter matches in Python."""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session, aliased

from climate.core.matching.expression import MAX_CONDITIONS, MAX_DEPTH, parse
from climate.core.matching.query import (
    And,
    Compare,
    Contains,
    Everything,
    In,
    Kind,
    Misfit,
    Not,
    Op,
    Operand,
    Or,
    Query,
    matches,
    version_key,
)
from climate.db.engine.database import Database
from climate.db.engine.driver_statement import POSTGRESQL
from climate.db.engine.types import HEAD
from climate.db.resources.properties.conditions import clause, equal, generalised, split
from climate.db.resources.resources import compared
from climate.db.tables.leases import ResourceProperty, ResourceRow
from tests.support.backends import on_sqlite

NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
Hosts = Sequence[Mapping[str, str]]

# Names and values that a sloppy collation, number format or quoting would confuse.
_NAMES = st.sampled_from(["gpu", "GPU", "gpu ", "gpú"])
_TEXTS = st.sampled_from(
    [
        *("16", "9", "016", "+16", "16.0", "1.6e1", "1e3", "1000", "-0", "0", "-1", "1e400"),
        *("5e-324", "1.7976931348623157e308", "9007199254740993", " 16", "16 ", "16\n", "1_6"),
        *("0x10", "\N{ARABIC-INDIC DIGIT ONE}", "a", "A", "á", "a ", "a\t", "aa", "Z", "z", "ß"),
        *("1.10", "1.9", "v1.9-rc2", "1.09", "a,aa", "aa,16,a ", ","),
        *("ss", "\uffff", "\U00010000", "True", "null", "NULL", "'", "\\", "%", "_", "%(x)s", ":x"),
    ]
)
_VALUES = st.one_of(
    _TEXTS,
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3),
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
)
_HOSTS = st.lists(st.dictionaries(_NAMES, _VALUES), min_size=1, max_size=6)
_OPERANDS = _VALUES.filter(bool).map(Operand)
_NUMBERS = _OPERANDS.filter(lambda operand: operand.number is not None)
_VERSIONS = _OPERANDS.filter(lambda operand: version_key(operand.text) is not None)
_ITEMS = _VALUES.filter(lambda text: text and "," not in text)
_NULL = st.just(Operand("null"))
_LEAVES = st.one_of(
    st.builds(Compare, st.sampled_from(get_args(Op)), _NAMES, _OPERANDS).filter(
        lambda query: query.op in ("==", "!=") or not query.value.is_null
    ),
    st.builds(Compare, st.sampled_from(["==", "!="]), _NAMES, _NULL),
    st.builds(In, _NAMES, st.lists(_OPERANDS | _NULL, min_size=1, max_size=4).map(tuple)),
    st.builds(Compare, st.sampled_from(get_args(Op)), _NAMES, _OPERANDS, st.just("text")),
    st.builds(Compare, st.sampled_from(get_args(Op)), _NAMES, _NUMBERS, st.just("number")),
    st.builds(Compare, st.sampled_from(get_args(Op)), _NAMES, _VERSIONS, st.just("version")),
    st.builds(Contains, _NAMES, _VALUES.filter(bool)),
    st.builds(Contains, _NAMES, _ITEMS, is_item=st.just(True)),
    st.builds(Misfit, _NAMES, st.just("does not fit")),
    st.just(Everything()),
)
_QUERIES: st.SearchStrategy[Query] = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=1, max_size=3).map(tuple)),
    ),
    max_leaves=5,
)


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    with database.read() as opened:
        yield opened


def _store(session: Session, hosts: Hosts) -> dict[int, Mapping[str, str]]:
    """Store hosts with these properties; return the properties by id."""
    stored = dict(enumerate(hosts, start=1))
    session.execute(
        sa.insert(ResourceRow),
        [
            {"id": id_, "type": "t", "external_id": str(id_), "reservable": True, "created_at": NOW}
            for id_ in stored
        ],
    )
    rows = [
        {"resource_id": id_, "name": n, **compared(v), "native": False}
        for id_, properties in stored.items()
        for n, v in properties.items()
    ]
    if rows:
        session.execute(sa.insert(ResourceProperty), rows)
    return stored


def _selected(session: Session, query: Query) -> set[int]:
    return set(session.scalars(sa.select(ResourceRow.id).where(clause(query, ResourceRow.id))))


def _mismatches(session: Session, hosts: Hosts, queries: Sequence[Query]) -> list[Query]:
    """Return the queries that select other hosts in SQL than in Python."""
    stored = _store(session, hosts)
    return [
        query
        for query in queries
        if _selected(session, query)
        != {id_ for id_, properties in stored.items() if matches(query, properties)}
    ]


# Every example rolls back what it stored, so all share one database.
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(hosts=_HOSTS, queries=st.lists(_QUERIES, min_size=1, max_size=4))
def test_sql_selects_exactly_what_matches_in_python(
    session: Session, hosts: list[dict[str, str]], queries: list[Query]
) -> None:
    try:
        assert _mismatches(session, hosts, queries) == []
    finally:
        session.rollback()


def test_compares_and_orders_every_value_as_python_does(session: Session) -> None:
    values = ["a", "a ", "A", "á", "Z", "16", "9", "016", "1e3", "-0", "0", "\uffff", "\U00010000"]
    queries = [Compare(op, "x", Operand(value)) for value in values for op in get_args(Op)]
    assert _mismatches(session, [{"x": value} for value in values], queries) == []


def test_finds_a_substring_as_python_does(session: Session) -> None:
    values = ["a", "A b", "xá", "x a\u0301", "50%", "5_0", "c:\\d", "it's", "16", "ss ß", "\uffff"]
    parts = ["a", "A", "á", " ", "%", "_", "\\", "'", "1", "ß", "\uffff"]
    queries = [query for part in parts for query in (Contains("x", part), Not(Contains("x", part)))]
    hosts = [*({"x": value} for value in values), {"x": ""}, {}]
    assert _mismatches(session, hosts, queries) == []


def test_compares_as_text_or_as_numbers(session: Session) -> None:
    _store(session, [{"x": "9"}, {"x": "16"}, {"x": "16.0"}, {"x": "many"}, {"x": "null"}, {}])
    assert _selected(session, Compare("<", "x", Operand("9"), "text")) == {2, 3}
    assert _selected(session, Compare(">=", "x", Operand("9"), "number")) == {1, 2, 3}
    assert _selected(session, Compare("!=", "x", Operand("16"), "number")) == {1}
    assert _selected(session, Compare("==", "x", Operand("16"), "text")) == {2}
    assert _selected(session, Compare("==", "x", Operand("null"), "text")) == {5}


@on_sqlite
def test_the_filter_correlates_with_the_enclosing_statement(session: Session) -> None:
    _store(session, [{"gpu": "1", "rack": "a"}, {"rack": "b"}, {"gpu": "2"}])
    has_gpu = Compare("==", "gpu", Operand("1"))
    racks = sa.select(ResourceProperty.value).where(
        ResourceProperty.name == "rack", clause(has_gpu, ResourceProperty.resource_id)
    )
    assert session.scalars(racks).all() == ["a"]
    inner = sa.select(clause(has_gpu, ResourceRow.id)).scalar_subquery()
    assert session.scalars(sa.select(ResourceRow.id).where(inner)).all() == [1]


def _compiled(query: Query) -> tuple[str, list[object]]:
    """Return the SQL text of a query and its parameters in order, with one condition split off."""
    prop = aliased(ResourceProperty)
    first, rest = split(query)
    conditions = [] if first is None else equal(prop, first)
    statement = sa.select(ResourceRow.id).where(*conditions, clause(rest, ResourceRow.id))
    compiled = statement.compile(dialect=POSTGRESQL)
    return str(compiled), list(compiled.params.values())


@settings(max_examples=100)
@given(query=_QUERIES)
def test_a_generalised_query_has_the_same_sql_and_the_same_parameters(query: Query) -> None:
    general, meaning = generalised(query)
    text, parameters = _compiled(general)
    meant = [meaning.get(each, each) if isinstance(each, str) else each for each in parameters]
    assert (text, meant) == _compiled(query)


def test_queries_that_differ_in_short_texts_are_generalised_to_the_same() -> None:
    def general(value: str, name: str = "node", kind: Kind = "either") -> Query:
        return generalised(Not(Compare("==", name, Operand(value), kind)))[0]

    assert general("node-1") == general("node-2", "rack") != general("3")
    assert general("3", "rack", "text") == general("node-1", kind="text")
    assert general("x" * HEAD) != general("y" * HEAD)
    assert general("null") != general("node-1")


@on_sqlite
def test_null_means_that_the_property_is_absent(session: Session) -> None:
    _store(session, [{"gpu": "1"}, {"gpu": "null"}, {}])
    assert _selected(session, Compare("==", "gpu", Operand("null"))) == {3}
    assert _selected(session, Compare("!=", "gpu", Operand("null"))) == {1, 2}
    assert _selected(session, In("gpu", (Operand("1"), Operand("null")))) == {1, 3}
    assert _selected(session, In("gpu", (Operand("null"),))) == {3}


def _nested(kind: str) -> object:
    """Return an expression of the greatest depth."""
    leaf = ["in", "$x", 1, "null"]
    query: object = leaf
    for level in range(MAX_DEPTH - 1):
        word = ("and", "or")[level % 2] if kind == "or" else "and"
        query = ["not", query] if kind == "not" else [word, leaf, query, leaf]
    return query


def test_every_database_parses_the_deepest_expression(session: Session) -> None:
    queries = [parse(_nested(kind)) for kind in ("and", "or", "not")]
    assert _mismatches(session, [{"x": "1"}, {"x": "2"}], queries) == []


def test_every_database_plans_the_longest_expression(session: Session) -> None:
    query = parse(["and", *(["!=", "$x", number] for number in range(MAX_CONDITIONS))])
    assert _mismatches(session, [{"x": "1"}, {"x": "999"}], [query]) == []
    if session.get_bind().dialect.name == "postgresql":
        # As joins, planning would take 15 seconds instead of half a second.
        statement = sa.select(ResourceRow.id).where(clause(query, ResourceRow.id))
        compiled = statement.compile(session.get_bind())
        explained = session.connection().exec_driver_sql(f"EXPLAIN {compiled}", compiled.params)
        assert "Join" not in "\n".join(explained.scalars())
