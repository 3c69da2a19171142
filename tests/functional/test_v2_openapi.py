"""v2 describes itself: a valid OpenAPI 3.1 document, and a page that needs nothing else."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from climate.api.app import OPEN, ROUTES
from tests.conftest import MakeStory
from tests.support.service import Story, hosts

DOCUMENT, PAGE = "/v2/openapi.json", "/v2/docs"


@pytest.fixture
def document(story: Story) -> dict[str, Any]:
    """Return the document."""
    return dict(story.ok("GET", DOCUMENT, token="not a token"))


def test_the_document_is_valid(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    assert [str(error) for error in OpenAPIV31SpecValidator(document).iter_errors()] == []


def test_every_route_is_in_it(document: dict[str, Any]) -> None:
    served = {
        (method.lower(), re.sub(r"<(\w+)>", r"{\1}", path))
        for method, path, *_ in (*OPEN, *ROUTES)
        if path.startswith("/v2")
    }
    described = {(method, path) for path, found in document["paths"].items() for method in found}
    assert described == served
    assert len(served) > 10


def test_what_needs_a_token_says_so(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for one in methods.values():
            is_open = path in {"/v2", "/v2/", DOCUMENT, PAGE}
            assert one["security"] == ([] if is_open else [{"token": []}]), path
            assert ("401" in one["responses"]) != is_open


def test_what_a_type_can_be_asked_is_in_it(document: dict[str, Any]) -> None:
    made = document["components"]["schemas"]
    params = made["ReservationRequest"]["properties"]["params"]
    assert params["anyOf"] == [{"$ref": "#/components/schemas/params.physical-host"}]
    asked = made["params.physical-host"]
    assert sorted(asked["required"]) == ["max", "min"]
    assert asked["additionalProperties"] is False
    assert made["LeaseRequest"]["additionalProperties"] is False


def test_all_types_are_in_it(make_story: MakeStory) -> None:
    story = make_story(manager__plugins=["physical.host.plugin", "virtual.instance.plugin"])
    document = story.ok("GET", DOCUMENT)
    assert [str(error) for error in OpenAPIV31SpecValidator(document).iter_errors()] == []
    made = document["components"]["schemas"]
    assert "amount" in made["params.virtual-instance"]["required"]
    assert len(made["ReservationRequest"]["properties"]["params"]["anyOf"]) == 2
    assert "params.virtual-instance" in story.call("GET", PAGE).get_data(as_text=True)


def test_what_is_answered_has_the_keys_that_it_says(story: Story, document: dict[str, Any]) -> None:
    story.ok("POST", "/v2/leases", story.asking(reservations=[hosts()]))
    page = story.ok("GET", "/v2/leases")
    made = document["components"]["schemas"]
    lease = page["leases"][0]
    for name, body in [
        ("LeasePage", page),
        ("Lease", lease),
        ("Reservation", lease["reservations"][0]),
        ("Event", lease["events"][0]),
        ("Resource", story.ok("GET", "/v2/resources")["resources"][0]),
        ("Notification", story.published()[0]),
    ]:
        assert list(made[name]["properties"]) == list(body), name


def test_refusals_are_as_it_says(story: Story, document: dict[str, Any]) -> None:
    made = document["components"]["schemas"]["Problem"]
    assert made["additionalProperties"] is True
    taken = story.ok("POST", "/v2/leases", story.asking(reservations=[hosts(3, 3)]))
    stale = {"If-Match": '"stale"'}
    for found in (
        story.problem(409, "POST", "/v2/leases", story.asking(reservations=[hosts(2, 2)])),
        story.problem(409, "POST", "/v2/leases", story.asking(reservations=[hosts()] * 2)),
        story.problem(412, "DELETE", f"/v2/leases/{taken['id']}", headers=stale),
        story.problem(400, "POST", "/v2/leases", {"nmae": "x"}),
    ):
        assert found.keys() <= made["properties"].keys()


def test_every_status_that_there_may_be_is_in_it(document: dict[str, Any]) -> None:
    refused = document["paths"]["/v2/leases"]["post"]["responses"]
    assert {"413", "503"} < refused.keys()
    assert all(
        code in refused["503"]["description"]
        for code in ("backend_unavailable", "identity_unavailable", "enforcement_unavailable")
    )
    assert "503" in document["paths"]["/v2/leases"]["get"]["responses"]


def test_every_moment_is_said_to_be_one(document: dict[str, Any]) -> None:
    made = document["components"]["schemas"]["LeaseRequest"]["properties"]
    for name in ("end", "end_by", "before_end"):
        assert made[name]["format"] == "date-time", name


class _Links(HTMLParser):
    """All that a page refers to, and whether it runs anything."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.ids: set[str] = set()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attributes:
            if name in {"href", "src"}:
                self.targets.append(value or "")
            if name == "id":
                self.ids.add(value or "")


def test_the_page_shows_it_and_needs_nothing_else(story: Story, document: dict[str, Any]) -> None:
    response = story.call("GET", PAGE, token="not a token")
    assert (response.status_code, response.mimetype) == (200, "text/html")
    assert response.headers["Content-Security-Policy"].startswith("default-src 'none'")
    text = response.get_data(as_text=True)
    for path in document["paths"]:
        assert f"<code>{path}</code>" in text
    found = _Links()
    found.feed(text)
    assert found.tags.isdisjoint({"script", "img", "link", "iframe"})
    assert set(document["components"]["schemas"]) < found.ids
    inside = {target[1:] for target in found.targets if target.startswith("#")}
    assert inside <= found.ids
    assert [target for target in found.targets if target[0] != "#"] == [DOCUMENT]


def test_discovery_leads_to_it(story: Story) -> None:
    versions = story.call("GET", "/").get_json()["versions"]
    assert [version["id"] for version in versions] == ["v1.0", "v2.0"]
    links = {link["rel"]: link["href"] for link in story.ok("GET", "/v2")["version"]["links"]}
    assert links["describedby"] == f"http://localhost{DOCUMENT}"


def test_it_knows_where_the_service_is_mounted(story: Story) -> None:
    response = story.http.get(DOCUMENT, base_url="https://example.org/reservation")
    assert response.get_json()["servers"] == [{"url": "/reservation"}]
    page = story.http.get(PAGE, base_url="https://example.org/reservation")
    assert f'href="/reservation{DOCUMENT}"' in page.get_data(as_text=True)
    made = story.http.post(
        "/v2/leases", json=story.asking(), base_url="https://example.org/reservation"
    )
    assert made.headers["Location"].startswith("/reservation/v2/leases/")
