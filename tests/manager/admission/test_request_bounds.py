"""The bounds of one request: conditions in all, reservations and time of a search for windows."""

import json
from typing import Any

import pytest

from climate.core.lease.model import HOST
from climate.core.matching.expression import MAX_CONDITIONS, parse
from climate.core.matching.query import both, written
from climate.manager.admission import requirements, window_search
from climate.manager.admission.window_search import MAX_REQUIREMENTS
from climate.manager.leases.reservation_changes import MAX_RESERVATIONS
from climate.plugins.request_fields import MAX_EXPRESSION
from tests.support.service import Story, host_reservation, hosts

END = "2030-01-16T12:00:00Z"
SEARCH = {"duration": 60, "end_by": END}
ASAP = {"name": "lease", "start": "asap", "duration": 60, "end_by": END}


ONE = ["==", "$vcpus", 16]


def conditions(count: int) -> list[Any]:
    return ["in", "$vcpus", *range(count)]


def test_all_reservations_of_a_lease_share_the_conditions(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [MAX_CONDITIONS // 2, MAX_CONDITIONS // 2 + 1]
    v2 = [hosts(1, 1, resource_properties=conditions(size)) for size in sizes]
    v1 = [host_reservation(1, 1, resource_properties=json.dumps(conditions(s))) for s in sizes]
    two: dict[str, Any] = {"reservations": v2}
    lease = story.ok("POST", "/v2/leases", story.asking(reservations=[v2[0]]))
    path = f"/v2/leases/{lease['id']}"
    for method, where, body in [
        ("POST", "/v1/leases", story.lease_body(reservations=v1)),
        ("POST", "/v2/leases", story.asking(**two)),
        ("POST", "/v2/leases", {**ASAP, **two}),
        ("PATCH", path, {"add_reservations": [v2[1]]}),
        ("PATCH", path, {"add_reservations": [v2[0], v2[0]]}),
        ("POST", "/v2/availability/search", {**SEARCH, **two}),
    ]:
        response = story.call(method, where, body)
        text = response.get_data(as_text=True)
        assert response.status_code == 400, (where, text)
        assert f"at most {MAX_CONDITIONS} are allowed in all" in text
    story.ok("PATCH", path, {"add_reservations": [v2[0]]})
    # A lease that has more, from before this rule, can still change, but not grow.
    monkeypatch.setattr(requirements, "MAX_CONDITIONS", MAX_CONDITIONS - 1)
    smaller = {"id": lease["reservations"][0]["id"], "params": {"min": 1, "max": 2}}
    story.ok("PATCH", path, {"reservations": [smaller], "end": story.moment(180)})
    story.problem(400, "PATCH", path, {"add_reservations": [hosts(resource_properties=ONE)]})


def test_the_texts_that_a_lease_stores_are_bounded(story: Story) -> None:
    fits = json.dumps(ONE).ljust(MAX_EXPRESSION)
    longer = f"{fits} "
    events = [{"event_type": "mail", "event_date": story.date(70)}] * (MAX_RESERVATIONS + 1)
    lease = story.reserve(reservations=[host_reservation(resource_properties=fits)])
    one = [{"id": lease["reservations"][0]["id"], "resource_properties": longer}]
    value = ["==", "$vcpus", "x" * MAX_EXPRESSION]
    for method, path, body in [
        ("POST", "/v1/leases", {"reservations": [host_reservation(resource_properties=longer)]}),
        ("POST", "/v1/leases", {"reservations": [host_reservation()], "events": events}),
        ("PUT", f"/v1/leases/{lease['id']}", {"reservations": one}),
        ("POST", "/v2/leases", story.asking(reservations=[hosts(resource_properties=longer)])),
        ("POST", "/v2/leases", story.asking(reservations=[hosts(resource_properties=value)])),
    ]:
        sent = story.lease_body(**body) if path == "/v1/leases" else body
        response = story.call(method, path, sent)
        text = response.get_data(as_text=True)
        assert response.status_code == 400, (path, text[:500])
        assert f"{MAX_EXPRESSION} bytes" in text or f"{MAX_RESERVATIONS}" in text, text[:500]
        assert len(text) < 1000


def test_only_conditions_from_expressions_count(story: Story) -> None:
    plugin = story.runtime.plugin(HOST)
    params = {"hypervisor_properties": "", "resource_properties": json.dumps(conditions(7))}
    query = plugin.requirement({"min": 1, "max": 1, **params}).query
    added = both(query, parse(["and", ["==", "$a", "1"], ["not", ["==", "$b", "2"]]]))
    assert (written(query), written(added)) == (7, 9)


def test_a_search_has_few_reservations(story: Story) -> None:
    few, many = ([hosts(1, 1)] * count for count in (MAX_REQUIREMENTS, MAX_REQUIREMENTS + 1))
    story.ok("POST", "/v2/availability/search", {**SEARCH, "reservations": few})
    story.problem(400, "POST", "/v2/availability/search", {**SEARCH, "reservations": many})
    detail = story.problem(400, "POST", "/v2/leases", {**ASAP, "reservations": many})["detail"]
    assert "at most 20 reservations (parts of stacks count), not 21" in detail
    problem = story.problem(409, "POST", "/v2/leases", story.asking(reservations=many))
    assert problem["code"] == "not_enough_resources"


def test_a_search_ends_at_its_deadline(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    story.reserve(0, 120, reservations=[host_reservation(4, 4)])
    tries = []

    def slow(*arguments: Any) -> None:
        tries.append(arguments)
        story.clock.advance(story.runtime.settings.search_timeout / 2 + 0.1)

    monkeypatch.setattr(window_search, "dry_run", slow)
    pair = [hosts(3, 3), hosts(1, 1)]
    for minutes in (130, 250, 370, 490):  # each end of a lease is a start to try
        story.reserve(minutes, minutes + 60, reservations=[host_reservation(4, 4)])
    body = {**SEARCH, "reservations": pair}
    problem = story.problem(400, "POST", "/v2/availability/search", body)
    assert (problem["code"], len(tries)) == ("search_too_long", 2)
    # A refusal then lacks only the later alternative.
    tries.clear()
    request = story.asking(10, 20, reservations=[hosts(3, 3), hosts(1, 1)])
    problem = story.problem(409, "POST", "/v2/leases", request)
    assert len(tries) == 2
    assert "later" not in [offer["differs"] for offer in problem["alternatives"]]
