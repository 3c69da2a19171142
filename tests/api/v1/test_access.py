"""Roles and projects in v1: leases belong to projects, hosts to operators."""

from typing import Any

import pytest

from tests.support.service import Story

ADMIN = "boss:ops:admin"
ALICE = "alice:lab:member"
CAROL = "carol:lab"  # without roles: an ordinary member
BOB = "bob:lab:reader"
EVE = "eve:other:member,reader"
GUEST = "guest:lab:guest"

HOST_ROUTES: list[tuple[str, str, Any]] = [
    ("GET", "/v1/os-hosts", None),
    ("POST", "/v1/os-hosts", {"name": "sim-5"}),
    ("GET", "/v1/os-hosts/1", None),
    ("PUT", "/v1/os-hosts/1", {"gpu": "True"}),
    ("GET", "/v1/os-hosts/1/allocation", None),
    ("GET", "/v1/os-hosts/allocations", None),
    ("GET", "/v1/os-hosts/properties", None),
    ("PATCH", "/v1/os-hosts/properties/gpu", {"private": True}),
    ("DELETE", "/v1/os-hosts/1", None),
]


@pytest.fixture
def lease(story: Story) -> dict[str, Any]:
    """Return a lease of Alice's."""
    return dict(story.ok("POST", "/v1/leases", story.lease_body(), token=ALICE)["lease"])


def listed(story: Story, token: str | None) -> list[str]:
    return [lease["id"] for lease in story.ok("GET", "/v1/leases", token=token)["leases"]]


def test_a_project_sees_its_leases_and_an_admin_all(story: Story, lease: dict[str, Any]) -> None:
    assert (lease["user_id"], lease["project_id"]) == ("alice", "lab")
    for token in (ALICE, CAROL, BOB, ADMIN, None):
        assert story.ok("GET", f"/v1/leases/{lease['id']}", token=token) == {"lease": lease}
        assert listed(story, token) == [lease["id"]]
    foreign = story.ok("POST", "/v1/leases", story.lease_body(), token=EVE)["lease"]
    assert set(listed(story, ADMIN)) == {lease["id"], foreign["id"]}
    assert listed(story, EVE) == [foreign["id"]]
    assert listed(story, BOB) == [lease["id"]]


def test_a_lease_of_another_project_is_not_found(story: Story, lease: dict[str, Any]) -> None:
    path = f"/v1/leases/{lease['id']}"
    # A body is not even parsed for a lease that the caller cannot see.
    for method, body in (("GET", None), ("PUT", {"end_date": "nonsense"}), ("DELETE", None)):
        message = story.refused(404, method, path, body, token=EVE)
        unknown = story.refused(404, method, "/v1/leases/nope", body, token=EVE)
        assert message == unknown.replace("nope", lease["id"])
    assert story.lease(lease["id"]) == lease


def test_members_and_admins_change_and_delete_a_lease(story: Story) -> None:
    for token in (ALICE, CAROL, ADMIN):
        lease = story.ok("POST", "/v1/leases", story.lease_body(), token=ALICE)["lease"]
        path = f"/v1/leases/{lease['id']}"
        changed = story.ok("PUT", path, {"name": "new"}, token=token)["lease"]
        assert [changed[key] for key in ("name", "user_id", "project_id")] == [
            *("new", "alice", "lab")
        ]
        story.ok("DELETE", path, token=token)
        assert listed(story, ADMIN) == []


def test_readers_change_nothing_and_guests_see_nothing(story: Story, lease: dict[str, Any]) -> None:
    path = f"/v1/leases/{lease['id']}"
    for method, target, body in (
        ("POST", "/v1/leases", story.lease_body()),
        ("PUT", path, {"name": "new"}),
        ("DELETE", path, None),
    ):
        response = story.call(method, target, body, token=BOB)
        assert response.status_code == 403
        assert response.headers["Climate-Error-Code"] == "forbidden"
        message = response.get_json()["error_message"]
        shape = {"error_code": 403, "error_message": message, "error_name": 403}
        assert response.get_json() == shape
    story.refused(403, "GET", "/v1/leases", token=GUEST)
    story.refused(403, "POST", "/v1/leases", story.lease_body(), token=GUEST)
    story.refused(403, "GET", path, token=GUEST)
    assert listed(story, ADMIN) == [lease["id"]]
    assert story.lease(lease["id"]) == lease


def test_hosts_belong_to_operators(story: Story) -> None:
    story.ok("PUT", "/v1/os-hosts/2", {"gpu": "True"})

    def hosts() -> list[Any]:
        return [story.ok("GET", f"/v1/os-hosts{path}") for path in ("", "/properties")]

    before = hosts()
    for method, path, body in HOST_ROUTES:
        for token in (ALICE, CAROL, BOB, EVE):
            story.refused(403, method, path, body, token=token)
    assert hosts() == before
    for method, path, body in HOST_ROUTES:
        assert story.call(method, path, body, token=ADMIN).status_code < 300, path


def test_a_malformed_token_is_401_and_roles_are_words(story: Story) -> None:
    for token in [
        *("", ":", "alice", "alice:", ":lab", "::admin", "gAAAAABm"),
        *("a" * 256 + ":lab", "alice:" + "l" * 256, "alice:l\x00b", "al\x00ice:lab"),
    ]:
        response = story.http.get("/v1/leases", headers={"X-Auth-Token": token})
        assert response.status_code == 401
        assert response.headers["Climate-Error-Code"] == "unauthenticated"
        assert response.get_json()["error_code"] == 401
    for roles in ("Admin", "member, ADMIN ", ",admin,"):
        story.ok("GET", "/v1/os-hosts", token=f"boss:ops:{roles}")
    for roles in ("administrator", "admin2", "no admin", "admin:x"):
        story.refused(403, "GET", "/v1/os-hosts", token=f"boss:ops:{roles}")


def test_every_database_compares_projects_exactly(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.ok("POST", "/v1/leases", story.lease_body(), token="a:lab")["lease"]
    for project in ("LAB", "lab ", "la", "l%b", "l_b", "lab'"):
        assert listed(story, f"a:{project}") == [], project
        story.refused(404, "GET", f"/v1/leases/{lease['id']}", token=f"a:{project}")
    longest = f"{'u' * 255}:{'p' * 255}"
    lease = story.ok("POST", "/v1/leases", story.lease_body(), token=longest)["lease"]
    assert (lease["user_id"], lease["project_id"]) == ("u" * 255, "p" * 255)
    assert listed(story, longest) == [lease["id"]]
