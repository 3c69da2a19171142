"""Who may do what: leases belong to projects, hosts to operators."""

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
    ("DELETE", "/v1/os-hosts/1", None),
    ("GET", "/v1/os-hosts/1/allocation", None),
    ("GET", "/v1/os-hosts/allocations", None),
    ("GET", "/v1/os-hosts/properties", None),
    ("PATCH", "/v1/os-hosts/properties/gpu", {"private": True}),
]


@pytest.fixture
def lease(story: Story) -> dict[str, Any]:
    """Return a lease of Alice's."""
    return story.ok("POST", "/v1/leases", story.lease_body(), token=ALICE)["lease"]


def listed(story: Story, token: str | None) -> list[str]:
    """Return the ids of the leases that somebody sees."""
    return [lease["id"] for lease in story.ok("GET", "/v1/leases", token=token)["leases"]]


def test_a_lease_belongs_to_whoever_asked_for_it(story: Story, lease: dict[str, Any]) -> None:
    assert (lease["user_id"], lease["project_id"]) == ("alice", "lab")


def test_the_project_and_admins_see_a_lease(story: Story, lease: dict[str, Any]) -> None:
    for token in [ALICE, CAROL, BOB, ADMIN, None]:
        assert story.ok("GET", f"/v1/leases/{lease['id']}", token=token) == {"lease": lease}
        assert listed(story, token) == [lease["id"]]


def test_an_admin_sees_all_leases_and_others_their_own(story: Story, lease: dict[str, Any]) -> None:
    theirs = story.ok("POST", "/v1/leases", story.lease_body(), token=EVE)["lease"]
    assert set(listed(story, ADMIN)) == {lease["id"], theirs["id"]}
    assert listed(story, EVE) == [theirs["id"]]
    assert listed(story, BOB) == [lease["id"]]


def test_a_lease_of_another_project_does_not_exist(story: Story, lease: dict[str, Any]) -> None:
    path = f"/v1/leases/{lease['id']}"
    for method, body in (("GET", None), ("PUT", {"name": "mine"}), ("DELETE", None)):
        message = story.refused(404, method, path, body, token=EVE)
        assert message == story.refused(404, method, "/v1/leases/nope", body, token=EVE).replace(
            "nope", lease["id"]
        )
    assert story.lease(lease["id"]) == lease


def test_what_a_stranger_sends_is_not_even_looked_at(story: Story, lease: dict[str, Any]) -> None:
    path = f"/v1/leases/{lease['id']}"
    story.refused(404, "PUT", path, {"end_date": "nonsense"}, token=EVE)


@pytest.mark.parametrize("token", [ALICE, CAROL, ADMIN])
def test_members_and_admins_change_and_delete_a_lease(
    story: Story, lease: dict[str, Any], token: str
) -> None:
    path = f"/v1/leases/{lease['id']}"
    changed = story.ok("PUT", path, {"name": "new"}, token=token)["lease"]
    assert (changed["name"], changed["user_id"], changed["project_id"]) == ("new", "alice", "lab")
    story.ok("DELETE", path, token=token)
    assert listed(story, ADMIN) == []


def test_a_reader_changes_nothing(story: Story, lease: dict[str, Any]) -> None:
    path = f"/v1/leases/{lease['id']}"
    for method, target, body in (
        ("POST", "/v1/leases", story.lease_body()),
        ("PUT", path, {"name": "new"}),
        ("DELETE", path, None),
    ):
        response = story.call(method, target, body, token=BOB)
        assert response.status_code == 403
        assert response.headers["Climate-Error-Code"] == "forbidden"
        assert response.get_json() == {
            "error_code": 403,
            "error_message": response.get_json()["error_message"],
            "error_name": 403,
        }
    assert listed(story, ADMIN) == [lease["id"]]
    assert story.lease(lease["id"]) == lease


def test_who_has_none_of_the_roles_sees_nothing(story: Story, lease: dict[str, Any]) -> None:
    story.refused(403, "GET", "/v1/leases", token=GUEST)
    story.refused(403, "POST", "/v1/leases", story.lease_body(), token=GUEST)
    story.refused(403, "GET", f"/v1/leases/{lease['id']}", token=GUEST)


@pytest.mark.parametrize(("method", "path", "body"), HOST_ROUTES)
def test_hosts_are_the_operators(story: Story, method: str, path: str, body: Any) -> None:
    story.ok("PUT", "/v1/os-hosts/2", {"gpu": "True"})
    before = story.ok("GET", "/v1/os-hosts"), story.ok("GET", "/v1/os-hosts/properties")
    for token in (ALICE, CAROL, BOB, EVE):
        story.refused(403, method, path, body, token=token)
    after = story.ok("GET", "/v1/os-hosts"), story.ok("GET", "/v1/os-hosts/properties")
    assert after == before


@pytest.mark.parametrize(("method", "path", "body"), HOST_ROUTES)
def test_an_admin_of_any_project_is_an_operator(
    story: Story, method: str, path: str, body: Any
) -> None:
    story.ok("PUT", "/v1/os-hosts/2", {"gpu": "True"})
    assert story.call(method, path, body, token=ADMIN).status_code < 300


def test_a_malformed_token_identifies_nobody(story: Story) -> None:
    for token in [
        "",
        ":",
        "alice",
        "alice:",
        ":lab",
        "::admin",
        "gAAAAABm",
        "a" * 256 + ":lab",
        "alice:" + "l" * 256,
        "alice:l\x00b",
        "al\x00ice:lab",
    ]:
        response = story.http.get("/v1/leases", headers={"X-Auth-Token": token})
        assert response.status_code == 401
        assert response.headers["Climate-Error-Code"] == "unauthenticated"
        assert response.get_json()["error_code"] == 401


def test_the_longest_names_fit_every_database(story_everywhere: Story) -> None:
    token = f"{'u' * 255}:{'p' * 255}"
    body = story_everywhere.lease_body()
    made = story_everywhere.ok("POST", "/v1/leases", body, token=token)["lease"]
    assert (made["user_id"], made["project_id"]) == ("u" * 255, "p" * 255)
    assert listed(story_everywhere, token) == [made["id"]]


def test_projects_are_told_apart_exactly(story_everywhere: Story) -> None:
    story = story_everywhere
    made = story.ok("POST", "/v1/leases", story.lease_body(), token="a:lab")["lease"]
    for project in ("LAB", "lab ", "la", "l%b", "l_b", "lab'"):
        token = f"a:{project}"
        assert listed(story, token) == [], project
        story.refused(404, "GET", f"/v1/leases/{made['id']}", token=token)


def test_roles_are_words_between_commas_in_any_case(story: Story) -> None:
    for roles in ("Admin", "member, ADMIN ", ",admin,"):
        story.ok("GET", "/v1/os-hosts", token=f"boss:ops:{roles}")
    for roles in ("administrator", "admin2", "no admin", "admin:x"):
        story.refused(403, "GET", "/v1/os-hosts", token=f"boss:ops:{roles}")
