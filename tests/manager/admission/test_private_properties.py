"""Queries with private properties: for requesters who may not read them they do not exist."""

import json
from typing import Any

import pytest

from tests.support.cases import each_case
from tests.support.service import Story, host_reservation, hosts

ALICE, ADMIN = "alice:lab", "boss:lab:admin"
SECRET = ["==", "$secret_owner", "acme"]
UNKNOWN = "Unknown property secret_owner at [1]"
LATER = {"start": "asap", "end_by": "2030-01-16T12:00:00Z", "duration": 60}


@pytest.fixture
def lab(story_everywhere: Story) -> Story:
    """Return a service in which sim-1 has a private property, and sim-2 one that was removed."""
    story = story_everywhere
    first = story.ok("GET", "/v1/os-hosts")["hosts"][0]["id"]
    story.ok("PUT", f"/v1/os-hosts/{first}", {"secret_owner": "acme", "rack": "r1"})
    _hide(story)
    return story


def _hide(story: Story, private: bool = True) -> None:
    story.ok("PATCH", "/v1/os-hosts/properties/secret_owner", {"private": private})


def v2(query: Any = SECRET) -> dict[str, Any]:
    return hosts(1, 1, resource_properties=query)


def v1(query: Any = SECRET) -> dict[str, Any]:
    return host_reservation(1, 1, resource_properties=json.dumps(query))


def reservation_change(lease: dict[str, Any], query: Any) -> dict[str, Any]:
    [reservation] = lease["reservations"]
    return {"id": reservation["id"], "params": {"resource_properties": query}}


def test_private_properties_do_not_exist_in_any_request_of_others(lab: Story) -> None:
    lease = lab.ok("POST", "/v2/leases", lab.asking(reservations=[v2([])]), token=ALICE)
    [reservation] = lease["reservations"]
    change_v1 = {"id": reservation["id"], "resource_properties": json.dumps(SECRET)}
    params = json.dumps({"resource_properties": SECRET})
    available = f"/v2/availability?resource_type=physical:host&end=2030-01-16T00:00:00Z&{params=!s}"
    search = {"reservations": [v2()], "duration": 60, "end_by": LATER["end_by"]}
    path = f"leases/{lease['id']}"
    requests: list[tuple[str, str, Any]] = [
        ("POST", "/v1/leases", lab.lease_body(reservations=[v1()])),
        ("PUT", f"/v1/{path}", {"reservations": [change_v1]}),
        ("POST", "/v2/leases", lab.asking(reservations=[v2()])),
        ("POST", "/v2/leases", {"name": "l", "reservations": [v2()], **LATER}),
        ("PATCH", f"/v2/{path}", {"reservations": [reservation_change(lease, SECRET)]}),
        ("PATCH", f"/v2/{path}", {"add_reservations": [v2()]}),
        ("GET", available, None),
        ("POST", "/v2/availability/search", search),
    ]
    for method, where, body in requests:
        response = lab.call(method, where, body, token=ALICE)
        text = response.get_data(as_text=True)
        assert (response.status_code, "did you mean" in text) == (400, False), (where, text)
        assert UNKNOWN in text, where
    for method, where, body in requests[-3:]:
        lab.ok(method, where, body, token=ADMIN)


@each_case("name", ["secret_owne", "secret_owner ", "Secret_Owner", "SECRET_OWNER", "secret-owner"])
def test_no_other_spelling_finds_a_private_property(lab: Story, name: str) -> None:
    body = lab.asking(reservations=[v2(["!=", f"${name}", "x"])])
    problem = lab.problem(400, "POST", "/v2/leases", body, token=ALICE)
    assert problem["detail"].startswith(f"Unknown property {name} at [1]")
    assert "secret" not in problem["detail"].partition("did you mean")[2]


def test_a_lease_keeps_its_query_whoever_changes_the_rest(lab: Story) -> None:
    lease = lab.ok("POST", "/v2/leases", lab.asking(reservations=[v2()]), token=ADMIN)
    path = f"/v2/leases/{lease['id']}"
    [reservation] = lease["reservations"]
    lab.ok("PATCH", path, {"end": lab.moment(180)}, token=ALICE)
    larger = {"id": reservation["id"], "params": {"max": 2}}
    lab.ok("PATCH", path, {"reservations": [larger], "add_reservations": [v2([])]}, token=ALICE)
    guess = ["==", "$secret_owner", "other"]
    lab.problem(
        400, "PATCH", path, {"reservations": [reservation_change(lease, guess)]}, token=ALICE
    )


def test_a_property_that_becomes_private_is_hidden_at_once(lab: Story) -> None:
    _hide(lab, private=False)
    request = lab.asking(reservations=[v2()])
    lab.ok("DELETE", f"/v2/leases/{lab.ok('POST', '/v2/leases', request, token=ALICE)['id']}")
    _hide(lab)
    lab.problem(400, "POST", "/v2/leases", request, token=ALICE)
